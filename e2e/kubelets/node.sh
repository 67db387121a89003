#!/usr/bin/env bash
# First process of a real node, in namespaces of its own (pids, mounts, network): killed, everything of the node is gone.
# Nothing of it is seen on the machine: what kubelet and containerd keep below /var/lib and /run lies in DIRECTORY.
set -euo pipefail
directory=$1 address=$2 gateway=$3 programs=$4 shared=$5
mount --make-rshared /
mount -t proc proc /proc
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs $place; done
mkdir -p /run/netns /var/lib/kubelet /var/lib/hajob-demo /var/log/pods "$directory/kubelet"
cat /proc/sys/kernel/random/uuid >"$directory/boot"
mount --bind "$directory/boot" /proc/sys/kernel/random/boot_id # by which a boot is known from the one before
mount --bind "$directory/kubelet" /var/lib/kubelet
mount --bind "$shared" /var/lib/hajob-demo # a file system that all nodes share
mount --make-rshared /var/lib/kubelet
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip link set lo up
ip addr add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
echo 1 >/proc/sys/net/ipv4/ip_forward
export PATH=$programs:$PATH
containerd --config "$directory/containerd.toml" >>"$directory/containerd.log" 2>&1 &
until [ -S "$directory/containerd.sock" ]; do sleep 0.05; done
while :; do
    kubelet --config "$directory/kubelet.json" --kubeconfig "$directory/kubeconfig" --hostname-override "$(basename "$directory")" \
        --node-ip "$address" --node-labels "$(cat "$directory/labels")" >>"$directory/kubelet.log" 2>&1 || true
    sleep 1 # as systemd does
done
