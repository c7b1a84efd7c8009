#!/bin/bash
# The reward is 1 if the repository's own check passes.
if (cd /app && python3 check.py); then echo 1; else echo 0; fi > /logs/verifier/reward.txt
cat "$PREPARED" > /logs/verifier/prepared
