#!/bin/bash
# Run torchrun on one node and pass USR1 on to its workers. torchrun itself ignores USR1, which would end it.
(trap '' USR1; exec torchrun "$@") &
launcher=$!
trap 'pkill -USR1 -P "$launcher"' USR1
while wait "$launcher"; code=$?; [ "$code" -eq 138 ]; do :; done  # 138: USR1 has interrupted wait
exit "$code"
