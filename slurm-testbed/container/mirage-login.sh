# Mirage stays on the real clock and converts. A testbed at --speed 1 has no other clock, and no such file.
if [ -e /run/mirage-testbed/clock.json ]; then
  MIRAGE_CLOCK=/run/mirage-testbed/clock.json         # for clients
  MIRAGE_CLUSTER__CLOCK=$MIRAGE_CLOCK                 # for the daemon, over its file
  export MIRAGE_CLOCK MIRAGE_CLUSTER__CLOCK
fi
