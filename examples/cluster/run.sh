#!/usr/bin/env bash
# A store on three members of etcd, behind Mosquitto, on this machine:
#   run.sh up           starts three etcd, Mosquitto and two stores on free ports of 127.0.0.1
#   run.sh kill-owner   kills the store that answers, and shows that a get goes on
#   run.sh down         ends everything, and removes its files
# The binary is $MQKV, by default the mqkv of $PATH; it must be built with the feature cluster. The files are in
# $MQKV_CLUSTER_DIR, by default mqkv-cluster in the folder of temporary files.
set -euo pipefail
shopt -s nullglob

mqkv=${MQKV:-mqkv}
work=${MQKV_CLUSTER_DIR:-${TMPDIR:-/tmp}/mqkv-cluster}
# Debian has Mosquitto in a folder that is not in the PATH of users.
PATH=$PATH:/usr/sbin

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# Fails with the last lines of all logs.
fail_with_logs() {
  for log in "$work"/*.log; do printf -- '--- %s\n' "${log##*/}" && tail -n 5 "$log"; done >&2
  fail "$*; run.sh down ends the others"
}

listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Starts a process that stays when this script ends.
start() {
  local name=$1
  shift
  nohup "$@" </dev/null >>"$work/$name.log" 2>&1 &
  echo $! >"$work/$name.pid"
}

runs() { kill -0 "$(<"$work/$1.pid")" 2>/dev/null; }

# Waits until a condition holds, while a process runs.
wait_until() {
  local name=$1
  shift
  for _ in {1..300}; do
    if "$@"; then return; fi
    runs "$name" || fail_with_logs "$name has ended"
    sleep 0.1
  done
  fail_with_logs "$name is not ready"
}

# Sets $broker to the first of seven free ports: the broker's, three of etcd for clients, three of etcd for its members.
find_ports() {
  for ((broker = 18830; broker < 19830; broker += 10)); do
    local port is_free=yes
    for ((port = broker; port < broker + 7; port++)); do
      if listens "$port"; then is_free=no; fi
    done
    if [ "$is_free" = yes ]; then return; fi
  done
  fail 'no seven free ports'
}

start_etcd() {
  local number=$1 members=
  for each in 1 2 3; do members+=",etcd-$each=http://127.0.0.1:$((broker + 3 + each))"; done
  start "etcd-$number" etcd --name "etcd-$number" --data-dir "$work/etcd-$number" --log-level error \
    --listen-client-urls "http://127.0.0.1:$((broker + number))" \
    --advertise-client-urls "http://127.0.0.1:$((broker + number))" \
    --listen-peer-urls "http://127.0.0.1:$((broker + 3 + number))" \
    --initial-advertise-peer-urls "http://127.0.0.1:$((broker + 3 + number))" \
    --initial-cluster "${members#,}" --initial-cluster-token "$work"
}

start_store() {
  start "store-$1" "$mqkv" store --log json -b "mqtt://127.0.0.1:$broker" --instance "$1" \
    --etcd "http://127.0.0.1:$((broker + 1)),http://127.0.0.1:$((broker + 2)),http://127.0.0.1:$((broker + 3))"
}

# Prints "EPOCH STORE" of each time that a store became the owner, the last one first.
owners() {
  for store in a b; do
    sed -n "s/.*\"cluster-took-over\".*\"epoch\":\"*\([0-9]*\).*/\1 $store/p" "$work/store-$store.log" 2>/dev/null || true
  done | sort -rn
}

has_owner() { [ -n "$(owners)" ]; }

has_connected() { grep -qs '"ready"' "$work/store-$1.log"; }

up() {
  for program in "$mqkv" etcd mosquitto; do
    command -v "$program" >/dev/null || fail "$program not found; apt-get install etcd-server mosquitto"
  done
  mkdir -m 700 "$work" 2>/dev/null || fail "$work exists: is the cluster up? $0 down"
  find_ports
  echo "$broker" >"$work/port"
  for number in 1 2 3; do start_etcd "$number"; done
  cat >"$work/mosquitto.conf" <<END
listener $broker 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_inflight_messages 1000
max_queued_messages 10000
END
  start mosquitto mosquitto -c "$work/mosquitto.conf"
  for number in 1 2 3; do wait_until "etcd-$number" listens $((broker + number)); done
  wait_until mosquitto listens "$broker"
  for store in a b; do start_store "$store"; done
  for store in a b; do wait_until "store-$store" has_connected "$store"; done
  wait_until store-a has_owner
  echo "up: mqkv -b mqtt://127.0.0.1:$broker set line1/temp 21.5"
}

kill_owner() {
  [ -f "$work/port" ] || fail "no cluster: $0 up"
  broker=$(<"$work/port")
  local url="mqtt://127.0.0.1:$broker" last owner began got
  "$mqkv" -b "$url" -q set line1/temp 21.5
  last=$(owners | head -n 1)
  owner=${last#* }
  echo "store $owner answers; killing it"
  kill -KILL "$(<"$work/store-$owner.pid")"
  began=${EPOCHREALTIME/[.,]/}
  got=$("$mqkv" -b "$url" get line1/temp) || fail_with_logs 'the get was not answered'
  [ "$got" = 21.5 ] || fail "the value is '$got'"
  last=$(owners | head -n 1)
  [ "${last#* }" != "$owner" ] || fail_with_logs 'no other store took over'
  echo "the get that was sent then was answered by store ${last#* } after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms: $got"
  rm "$work/store-$owner.log"
  start_store "$owner"
  wait_until "store-$owner" has_connected "$owner"
  echo "store $owner runs again, and follows"
}

down() {
  [ -d "$work" ] || fail "no cluster: $0 up"
  for pid in "$work"/*.pid; do kill "$(<"$pid")" 2>/dev/null || true; done
  for pid in "$work"/*.pid; do
    for _ in {1..100}; do
      kill -0 "$(<"$pid")" 2>/dev/null || break
      sleep 0.1
    done
  done
  rm -rf "$work"
}

case ${1:-} in
up) up ;;
kill-owner) kill_owner ;;
down) down ;;
*) fail "usage: $0 up|kill-owner|down" ;;
esac
