#!/bin/sh
# Three agq on one PostgreSQL: starts them with two workers, runs an action of 2,000 jobs, kills a node in the middle, and leaves
# nothing behind. PostgreSQL is started for it, from PATH or from where Debian puts it; or say where one is, with an empty database:
# AGQ_STORE=postgres://USER@HOST/DATABASE. The binaries are taken from the directory $AGENIX_BIN, or else from PATH.
set -eu

if [ -n "${AGENIX_BIN:-}" ]; then
    PATH=$(CDPATH='' cd -- "$AGENIX_BIN" && pwd):$PATH
    export PATH
fi
unset AGQ_CONFIG AGQ_BIND AGQ_SESSION_KEY_FILE AGW_WORKER_ID AGW_TOOLS AGW_SPOOL_DIR

dir=$(mktemp -d "${TMPDIR:-/tmp}/agenix-nodes.XXXXXX")
pids=''
postgres_pid=''

clean_up() {
    code=$?
    trap - EXIT
    for pid in $pids; do kill -TERM "$pid" 2>/dev/null || :; done
    for pid in $pids; do wait "$pid" 2>/dev/null || :; done
    if [ -n "$postgres_pid" ]; then
        kill -INT "$postgres_pid" 2>/dev/null || :
        wait "$postgres_pid" 2>/dev/null || :
    fi
    if [ "$code" -ne 0 ]; then tail -n 5 "$dir"/*.log >&2 || :; fi
    rm -rf "$dir"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Until a command succeeds, for half a minute.
until_done() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || { echo "three-nodes: '$*' did not succeed" >&2; exit 1; }
        sleep 0.1
    done
}

start_postgres() {
    bin=''
    for candidate in "$(dirname "$(command -v initdb || echo none)")" /usr/lib/postgresql/*/bin; do
        if [ -x "$candidate/initdb" ] && [ -x "$candidate/pg_isready" ]; then bin=$candidate; fi
    done
    [ -n "$bin" ] || { echo "three-nodes: there is no PostgreSQL; Debian's package is postgresql" >&2; exit 1; }
    mkdir "$dir/pg"
    # PostgreSQL does not run as root.
    unprivileged=''
    if [ "$(id -u)" -eq 0 ]; then
        chmod 755 "$dir" && chown 65534:65534 "$dir/pg"
        unprivileged='setpriv --reuid=65534 --regid=65534 --clear-groups'
    fi
    cd "$dir/pg"
    $unprivileged "$bin/initdb" --auth=trust --username=agq --pgdata="$dir/pg/data" >"$dir/initdb.log"
    $unprivileged "$bin/postgres" -D "$dir/pg/data" -c listen_addresses= -c unix_socket_directories="$dir/pg" \
        >"$dir/postgres.log" 2>&1 &
    postgres_pid=$!
    until_done "$bin/pg_isready" --host="$dir/pg" --username=agq
    cd - >/dev/null
    AGQ_STORE="postgres://agq@localhost/postgres?host=$dir/pg"
}

[ -n "${AGQ_STORE:-}" ] || start_postgres
export AGQ_STORE
AGQ_SESSION_KEY=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export AGQ_SESSION_KEY

# A node tells its address when it is there.
addresses=''
for node in 1 2 3; do
    agq --port 0 --store-lease 2 >"$dir/node-$node.log" 2>&1 &
    pids="$pids $!"
    [ "$node" -ne 1 ] || first=$!
    until_done grep -q 'listens on' "$dir/node-$node.log"
    address=$(sed -n 's/.*listens on \([^,]*\),.*/\1/p' "$dir/node-$node.log")
    addresses="$addresses${addresses:+,}$address"
    echo "node $node listens on $address"
done
export AGQ_ADDR="$addresses"

for worker in 1 2; do
    agw --worker-id "worker-$worker" >"$dir/worker-$worker.log" 2>&1 &
    pids="$pids $!"
done

echo '{"plan_id":"greet","tasks":[{"task_number":1,"command":"echo","args":["hello","{{input.n}}"]}]}' >"$dir/plan.json"
agx plan submit "$dir/plan.json"
seq 2000 | awk 'BEGIN { printf "[" } { printf "%s{\"n\":%d}", (NR > 1 ? "," : ""), $1 } END { printf "]" }' >"$dir/inputs.json"
agx action submit greet --id greetings --inputs "$dir/inputs.json"

until_done sh -c 'agx action status greetings --json | grep -Eq "\"completed\":[0-9]{3}"'
kill -KILL "$first"
echo 'node 1 was killed (SIGKILL), with jobs under way'

until_done sh -c 'agx action status greetings --json | grep -Eq "\"completed\":2000"'
agx action status greetings
echo 'three-nodes: all went well'
