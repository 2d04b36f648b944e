#!/bin/bash
#SBATCH --job-name=server --nodes=1 --exclusive --time=24:00:00 --output=server-%j.log
#SBATCH --signal=B:TERM@60
#MIRAGE --handover when-ready --grace 60 --lead 10m --done-exit-code none

exec python3 server.py
