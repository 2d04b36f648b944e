.PHONY: demo plugins test lint types contract testbed serving reference openapi package package-test image screens charts man docs clean fuzz chaos audit
PY ?= python3
V := .venv/bin
# The predictors that learn, with what they are trained with.
PLUGINS := -e plugins/mirage-encoders $(foreach name,random-forest xgboost dqn policy-gradient,-e 'plugins/mirage-$(name)[train]')

# All but the predictors that learn and what Mirage is tested with: those take gigabytes.
$(V)/.installed: pyproject.toml constraints.txt
	$(PY) -m venv .venv
	$(V)/pip install --quiet --upgrade 'pip>=25.1'
	$(V)/pip install --quiet -c constraints.txt -e '.[all]'
	$(V)/mirage demo --prepare
	touch $@

$(V)/.ready: $(V)/.installed $(wildcard plugins/*/pyproject.toml)
	$(V)/pip install --quiet -c constraints.txt -e '.[all,train,slurm]' $(PLUGINS) --group dev
	touch $@

demo: $(V)/.installed
	$(V)/mirage demo

# The predictors that learn, and all that a developer needs.
plugins: $(V)/.ready

# The tests start hundreds of processes: where Python is told to keep nothing, each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
# Each process of the tests would compile all modules and kernels for itself: one does so before, beside the check of
# types.
# Many tests wait for clocks, Slurm's or their own: eight at a time keep two processors busy.
test: lint contract
	@$(V)/mypy & types=$$!; $(V)/python tests/compiled.py; $(V)/pytest --collect-only -n 0 >/dev/null; wait $$types
	$(V)/pytest -n 8

lint: $(V)/.ready
	$(V)/ruff check .
	$(V)/ruff format --check .

types: $(V)/.ready
	$(V)/mypy

# The readers in tests/fuzz on hostile input, for SECONDS in all; the tests do the same for some ten seconds.
SECONDS ?= 60
fuzz: $(V)/.ready
	$(V)/python tests/fuzz --seconds $(SECONDS)

# Known faults of the installed packages; 75: the database that knows them is out of reach.
audit: $(V)/.ready
	.ci/audit

contract: $(V)/.ready
	$(V)/lint-imports

# The description of the REST interface, from which clients are generated.
openapi: $(V)/.ready
	$(V)/python -m mirage.api.openapi docs/openapi.json

# What is made of the code and kept beside it.
man: $(V)/.ready
	$(V)/python -m mirage.cli.man docs/man

# The site of the documents, in dist/docs. What the theme says of mkdocs' future stands in CONTRIBUTING.md.
docs: $(V)/.ready
	NO_MKDOCS_2_WARNING=1 $(V)/mkdocs build --clean

# The charts that the README shows, made of the tables in docs/benchmarks.
charts: $(V)/.ready
	PYTHONPATH=. $(V)/python docs/site/charts.py docs/charts

testbed:
	@slurm-testbed/testbed start --speed 60
	@echo 'A shell with Slurm'"'"'s clock:   . <(slurm-testbed/testbed env)          then sinfo, sbatch ...'
	@echo 'A shell for mirage:         . <(slurm-testbed/testbed env --plain)'
	@echo 'How it is, and its end:     slurm-testbed/testbed status | stop | wipe'

# A gateway on a testbed of its own, asked on and on while one link hands over to the next.
serving: $(V)/.ready
	@$(V)/python slurm-testbed/serving

# Faults of all kinds, combined at random: SEEDS=17 plays one again and tells its story.
SEEDS ?= 0-999
chaos: $(V)/.ready
	@PYTHONPATH=tests $(V)/python -m chaos $(SEEDS)

reference: $(V)/.ready
	$(V)/mirage config reference >deploy/mirage.toml.new
	mv deploy/mirage.toml.new deploy/mirage.toml

# What a site installs, for this machine's release and Python; see docs/deploy.md.
package:
	deploy/package/build deb tar

# The packages on clean machines; needs a container engine, rpmbuild for the rpm, and MIRAGE_BASE_IMAGE (tests/containers.py).
package-test: $(V)/.ready package
	MIRAGE_PACKAGE=$$(ls -t dist/*.deb | head -1) $(V)/pytest -n 0 tests/deploy/test_installed_package.py tests/deploy/test_installed_rpm.py -rs

image:
	docker build -f deploy/container/Dockerfile -t mirage $(if $(MIRAGE_BASE_IMAGE),--build-arg BASE=$(MIRAGE_BASE_IMAGE)) .

screens: $(V)/.ready
	PYTHONPATH=tests $(V)/python tests/web/screens.py docs/screens

clean:
	rm -rf .venv demo-out dist
