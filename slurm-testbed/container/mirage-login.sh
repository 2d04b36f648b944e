# Mirage stays on the real clock and converts. A testbed at --speed 1 has no other clock, and no such file.
if [ -e /run/mirage-testbed/clock.json ]; then
  export MIRAGE_CLUSTER__CLOCK=/run/mirage-testbed/clock.json
fi
