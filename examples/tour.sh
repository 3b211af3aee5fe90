#!/bin/sh
# A tour of AGEniX: starts a queue and a worker of its own, shows each step with its command, and leaves nothing behind.
# The binaries are taken from the directory $AGENIX_BIN, or else from PATH.
set -eu

if [ -n "${AGENIX_BIN:-}" ]; then
    PATH=$(CDPATH='' cd -- "$AGENIX_BIN" && pwd):$PATH
    export PATH
fi
cd -- "$(dirname -- "$0")/.."
unset AGQ_CONFIG AGQ_BIND AGQ_SESSION_KEY_FILE AGW_WORKER_ID AGW_TOOLS AGW_SPOOL_DIR

dir=$(mktemp -d "${TMPDIR:-/tmp}/agenix-tour.XXXXXX")
agq_pid=''
agw_pid=''

# Ends what is left of the tour, whatever came between.
clean_up() {
    code=$?
    trap - EXIT
    if [ -n "$agq_pid$agw_pid" ]; then
        for log in agq agw; do
            [ ! -s "$dir/$log.log" ] || { echo "--- the end of $log.log:"; tail -n 20 "$dir/$log.log"; } >&2
        done
        for pid in $agw_pid $agq_pid; do kill -TERM "$pid" 2>/dev/null || :; done
        sleep 1
        for pid in $agw_pid $agq_pid; do kill -KILL "$pid" 2>/dev/null || :; done
        wait
    fi
    rm -rf "$dir"
    exit "$code"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
    echo "tour: $*" >&2
    exit 1
}

title() {
    printf '\n\n== %s\n' "$*"
}

# Shows a command.
say() {
    printf '\n$ %s\n' "$*"
}

# Shows and runs a command that must end with the exit code given first.
expect() {
    want=$1
    shift
    say "$*"
    code=0
    "$@" || code=$?
    [ "$want" -eq 0 ] || echo "(exit code $code)"
    [ "$code" -eq "$want" ] || fail "'$*' ended with exit code $code, expected $want"
}

run() {
    expect 0 "$@"
}

# The same for a command that must print a line like the pattern given first.
run_for() {
    line=$1
    shift
    say "$*"
    "$@" > "$dir/out" || fail "'$*' ended with exit code $?"
    cat "$dir/out"
    grep -qx -e "$line" "$dir/out" || fail "'$*' did not print a line like '$line'"
}

# Waits, at most 30 seconds, until the process given first has made the rest of the arguments succeed.
wait_until() {
    pid=$1
    shift
    tries=0
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || fail "the process that '$*' waits for has ended"
        tries=$((tries + 1))
        [ "$tries" -lt 300 ] || fail "half a minute has passed without: $*"
        sleep 0.1
    done
}

# Stops a process with SIGTERM; it must end with exit code 0.
stop() {
    say "kill -TERM $2    # $1"
    kill -TERM "$2"
    code=0
    wait "$2" || code=$?
    [ "$code" -eq 0 ] || fail "$1 ended with exit code $code, expected 0"
    echo "$1 has stopped"
}

is_listening() { grep -q '^agq .* listens on .*, data in ' "$dir/agq.out"; }
has_worker() { agx worker list > "$dir/workers" && grep -q '^tour ' "$dir/workers"; }

for program in agq agw agx; do
    command -v "$program" > "$dir/which" || fail "there is no $program on PATH: set AGENIX_BIN to the directory of the binaries"
done

title 'A queue and a worker'
# Whoever knows the key may do everything: it goes through the environment, never through an argument.
AGQ_SESSION_KEY=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')
export AGQ_SESSION_KEY
say "agq --port 0 --data-dir $dir/data &"
agq --port 0 --data-dir "$dir/data" > "$dir/agq.out" 2> "$dir/agq.log" &
agq_pid=$!
wait_until "$agq_pid" is_listening
cat "$dir/agq.out"
AGQ_ADDR=$(sed -n 's/^agq .* listens on \([^,]*\),.*/\1/p' "$dir/agq.out")
export AGQ_ADDR

say "export AGQ_ADDR=$AGQ_ADDR AGQ_SESSION_KEY=…"
say 'agw --worker-id tour --max-concurrent-jobs 2 &'
agw --worker-id tour --max-concurrent-jobs 2 2> "$dir/agw.log" &
agw_pid=$!
wait_until "$agw_pid" has_worker
run agx worker list

title 'A plan is checked, then stored'
run agx plan check examples/word-frequency.json
run agx plan submit examples/word-frequency.json
run_for word-frequency agx plan list

title 'An action runs the plan once for each input'
echo 'to be or not to be' > "$dir/hamlet.txt"
echo 'my kingdom for a horse, a horse' > "$dir/richard.txt"
echo 'fair is foul and foul is fair' > "$dir/macbeth.txt"
say "printf '%s\\n' $dir/*.txt | agx action submit word-frequency --id words --lines - --field file --wait"
printf '%s\n' "$dir"/*.txt | agx action submit word-frequency --id words --lines - --field file --wait
run_for ' *completed  *3' agx action status words
run_for ' *2 horse' agx action results words --ordered

title 'Its jobs, the worker and the queue'
run agx job list words
job=$(agx job list words --status completed | sed -n 1p)
run_for ' *worker  *tour' agx job status "$job"
run agx worker list
run_for 'ready  *0 jobs' agx queue stats

title 'A bad plan is refused, before and by agq'
echo '{"plan_id": "bad", "tasks": [{"task_number": 1, "command": "sort | uniq"}]}' > "$dir/bad.json"
run cat "$dir/bad.json"
expect 2 agx plan check "$dir/bad.json"
expect 4 agx plan submit "$dir/bad.json"

title 'A job that fails says why'
echo "$dir/missing.txt" > "$dir/lines"
expect 1 agx action submit word-frequency --id fails --lines "$dir/lines" --field file --wait
expect 1 agx action results fails
run_for ' *failed  *1' agx action status fails

title 'Who asks most often: log-top-talkers'
run agx plan submit examples/log-top-talkers.json
echo examples/data/access.log > "$dir/lines"
run agx action submit log-top-talkers --id talkers --lines "$dir/lines" --field file --wait
run_for ' *8 198.51.100.23' agx action results talkers

title 'How often each city occurs: csv-histogram'
run agx plan submit examples/csv-histogram.json
echo '[{"file": "examples/data/orders.csv", "column": 3}]' > "$dir/inputs.json"
run cat "$dir/inputs.json"
run agx action submit csv-histogram --id cities --inputs "$dir/inputs.json" --wait
run_for ' *6 Berlin' agx action results cities

title 'Checksums of a tree: checksum-tree'
run agx plan submit examples/checksum-tree.json
echo examples/data > "$dir/lines"
run agx action submit checksum-tree --id checksums --lines "$dir/lines" --field dir --wait
say 'agx action results checksums | (cd examples/data && sha256sum -c)'
agx action results checksums > "$dir/checksums"
(cd examples/data && sha256sum -c) < "$dir/checksums"

title 'To UTF-8 and packed into a file: gzip-text'
run agx plan submit examples/gzip-text.json
printf 'caf\351\r\n' > "$dir/latin1"
echo "[{\"file\": \"$dir/latin1\", \"encoding\": \"ISO-8859-1\", \"output\": \"$dir/utf8.gz\"}]" > "$dir/inputs.json"
run agx action submit gzip-text --id packed --inputs "$dir/inputs.json" --wait
run_for 'café' gzip -d -c "$dir/utf8.gz"

title 'The worker drains, the queue stops'
stop agw "$agw_pid"
agw_pid=''
stop agq "$agq_pid"
agq_pid=''

printf '\ntour: all went well\n'
