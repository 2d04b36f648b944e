#!/bin/bash
#SBATCH --job-name=serve --nodes=1 --exclusive --time=20 --output=serve-%j.log
#SBATCH --signal=B:TERM@60
#MIRAGE --handover when-ready --grace 60 --predictor fixed:5m --links 3

exec python3 serve.py
