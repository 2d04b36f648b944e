.PHONY: demo test lint types contract testbed reference clean
PY ?= python3
V := .venv/bin
# The predictors that learn, with what they are trained with.
PLUGINS := -e plugins/mirage-encoders $(foreach name,random-forest xgboost dqn policy-gradient,-e 'plugins/mirage-$(name)[train]')

$(V)/.ready: pyproject.toml constraints.txt $(wildcard plugins/*/pyproject.toml)
	$(PY) -m venv .venv
	$(V)/pip install --quiet --upgrade 'pip>=25.1'
	$(V)/pip install --quiet -c constraints.txt -e '.[all,train,slurm]' $(PLUGINS) --group dev
	touch $@

demo: $(V)/.ready
	$(V)/mirage demo

test: lint types contract
	$(V)/pytest -n 2

lint: $(V)/.ready
	$(V)/ruff check .
	$(V)/ruff format --check .

types: $(V)/.ready
	$(V)/mypy

contract: $(V)/.ready
	$(V)/lint-imports

testbed:
	@slurm-testbed/testbed start --speed 60
	@echo 'A shell with Slurm'"'"'s clock:   . <(slurm-testbed/testbed env)          then sinfo, sbatch ...'
	@echo 'A shell for mirage:         . <(slurm-testbed/testbed env --plain)'
	@echo 'How it is, and its end:     slurm-testbed/testbed status | stop | wipe'

reference: $(V)/.ready
	$(V)/mirage config reference >deploy/mirage.toml.new
	mv deploy/mirage.toml.new deploy/mirage.toml

clean:
	rm -rf .venv demo-out
