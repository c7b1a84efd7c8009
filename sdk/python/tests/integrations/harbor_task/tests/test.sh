#!/bin/bash
# The reward is 1 if the repository's own check passes.
if (cd /app && python3 check.py); then echo 1; else echo 0; fi > /logs/verifier/reward.txt
cat "$PREPARED" > /logs/verifier/prepared
# Only what is prepared in memory has a server: `--ek setup='python3 serve.py'`.
cat < /dev/tcp/127.0.0.1/7000 > /logs/verifier/served || true
