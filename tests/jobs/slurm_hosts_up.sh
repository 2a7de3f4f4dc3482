#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A private Slurm of N hosts, each a network namespace with an address, a host name and a TMPDIR of its own, below DIR:
# slurm_hosts_up.sh DIR N. Commands run on host I by `DIR/on hI COMMAND...`, with SLURM_CONF=DIR/slurm.conf. End it by
# slurm_hosts_down.sh DIR. Needs root, iproute2, slurm-wlm and munge; touches no Slurm that is installed.
set -euo pipefail
# shellcheck source=tests/jobs/slurm_common.sh
source "$(dirname "${BASH_SOURCE[0]}")/slurm_common.sh"
dir=$(realpath "$1") nodes=$2 tag=b$$
echo "$tag" >"$dir/tag"
mkdir -p "$dir/hosts"
ip netns add "$tag-sw"
ip -n "$tag-sw" link add br0 type bridge
ip -n "$tag-sw" link set br0 up
{
  echo 127.0.0.1 localhost
  for i in $(seq "$nodes"); do echo "10.77.0.$i h$i"; done
} >"$dir/hosts/hosts"
for i in $(seq "$nodes"); do
  mkdir -p "$dir/tmp.h$i" "$dir/spool.h$i"
  ip netns add "$tag-h$i"
  ip -n "$tag-h$i" link add eth0 type veth peer name "p$i" netns "$tag-sw"
  ip -n "$tag-h$i" addr add "10.77.0.$i/24" dev eth0
  ip -n "$tag-h$i" link set eth0 up
  ip -n "$tag-h$i" link set lo up
  ip -n "$tag-sw" link set "p$i" master br0
  ip -n "$tag-sw" link set "p$i" up
done
cat >"$dir/on" <<ON
#!/usr/bin/env bash
h=\$1
shift
exec nsenter --net=/run/netns/$tag-\$h unshare -u -m bash -c 'mount --bind "\$0/hosts/hosts" /etc/hosts; hostname "\$1"; export TMPDIR=\$0/tmp.\$1; shift; exec "\$@"' "$dir" "\$h" "\$@"
ON
chmod +x "$dir/on"
start_munge "$dir"
{
  print_common_conf "$dir"
  printf '%s\n' "SlurmctldHost=h1(10.77.0.1)"
  for i in $(seq "$nodes"); do
    echo "NodeName=h$i NodeAddr=10.77.0.$i CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=1000"
  done
  echo "PartitionName=main Nodes=h[1-$nodes] Default=YES MaxTime=60 State=UP"
} >"$dir/slurm.conf"
export SLURM_CONF="$dir/slurm.conf"
"$dir/on" h1 slurmctld -f "$SLURM_CONF"
for i in $(seq "$nodes"); do "$dir/on" "h$i" slurmd -f "$SLURM_CONF"; done
wait_until_idle "$dir" "$dir/on" h1 sinfo
