#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ends what slurm_hosts_up.sh DIR started: daemons by their process ids, then its namespaces.
set -uo pipefail
dir=$(realpath "$1")
for pidfile in "$dir"/run/*.pid; do
  [ -f "$pidfile" ] && kill "$(cat "$pidfile")" 2>/dev/null
done
sleep 0.5
tag=$(cat "$dir/tag")
for name in $(ip netns list | cut -d' ' -f1 | grep "^$tag-"); do ip netns del "$name"; done
