#!/usr/bin/env bash
# Runs the root and two leaves of an exchange on this machine, stops the root while both leaves change the same key,
# and shows the conflict. Exits with 0 if the change of one leaf won, and the other one is recorded as a conflict.
# The binary is $MQKV, by default the mqkv of $PATH.
set -euo pipefail

mqkv=${MQKV:-mqkv}
files=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
declare -A pids ports

clean_up() {
  for node in "${!pids[@]}"; do kill "${pids[$node]}" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap clean_up EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  for log in "$work"/*.log; do printf -- '--- %s\n' "${log##*/}" && cat "$log"; done >&2
  exit 1
}

# Starts a node on its port of the last time, at first on a free one, and waits until it listens.
start() {
  local node=$1
  rm -f "$work/$node.port"
  "$mqkv" serve --listen "127.0.0.1:${ports[$node]:-0}" --port-file "$work/$node.port" \
    --data "$work/$node" --exchange "$work/$node.toml" 2>>"$work/$node.log" &
  pids[$node]=$!
  until [ -s "$work/$node.port" ]; do
    kill -0 "${pids[$node]}" 2>/dev/null || fail "$node has ended"
    sleep 0.1
  done
  ports[$node]=$(<"$work/$node.port")
}

stop() {
  kill "${pids[$1]}"
  wait "${pids[$1]}"
  unset "pids[$1]"
}

# Runs a verb at a node, and shows it.
at() {
  local node=$1
  shift
  printf '%s$ mqkv %s\n' "$node" "$*" >&2
  "$mqkv" -b "mqtt://127.0.0.1:${ports[$node]}" "$@"
}

cp "$files/root.toml" "$work"
start root
for leaf in press-7 press-9; do
  sed "s|^root = .*|root = \"mqtt://127.0.0.1:${ports[root]}\"|" "$files/$leaf.toml" >"$work/$leaf.toml"
  start "$leaf"
done
at press-7 exchange status --wait 30s >/dev/null
at press-9 exchange status --wait 30s >/dev/null

echo '== A set point of the root reaches both leaves'
at root set line/2/setpoint 70
at root exchange status --wait 30s
for leaf in press-7 press-9; do
  [ "$(at "$leaf" get line/2/setpoint)" = 70 ] || fail "$leaf does not have the value of the root"
done

echo '== Without the root, both leaves change it'
stop root
at press-7 set line/2/setpoint 80
at press-9 set line/2/setpoint 75

echo '== With the root again, one change wins'
start root
at press-7 exchange status --wait 60s >/dev/null
at press-9 exchange status --wait 60s >/dev/null
at root exchange status --wait 60s
won=$(at root get line/2/setpoint)
case $won in
80) loser=press-9 lost=75 ;;
75) loser=press-7 lost=80 ;;
*) fail "the value of the root is $won" ;;
esac
for leaf in press-7 press-9; do
  [ "$(at "$leaf" get line/2/setpoint)" = "$won" ] || fail "$leaf does not have $won"
done

echo '== The other one is a conflict, at the root and at its leaf'
for node in root "$loser"; do
  conflicts=$(at "$node" exchange conflicts)
  printf '%s\n' "$conflicts"
  [[ $conflicts == 1$'\t'*$'\t'line/2/setpoint$'\t'$loser$'\t'first-leaf-wins$'\t'*$'\t'$lost ]] ||
    fail "$node has another conflict"
  [ "$(at "$node" exchange value 1)" = "$lost" ] || fail "$node does not have the value that lost"
done
echo "OK: $won won, and $lost of $loser is a conflict"
