#!/bin/sh
# A tour of the Open Job Spec, as agq speaks it over HTTP, with nothing but curl: each request, its answer,
# and whether that is right.
set -eu

URL=${AGQ_URL:-http://127.0.0.1:6381}
QUEUE=tour-$$

fail() {
    echo "tour: $*" >&2
    exit 1
}

title() {
    printf '\n== %s\n' "$*"
}

[ -n "${AGQ_SESSION_KEY:-}" ] || fail 'AGQ_SESSION_KEY is not set. Set it to the key that agq has.'
[ -x "$(command -v curl)" ] || fail 'there is no curl. Install it.'

# The key goes through a file that only its owner reads: arguments are seen by everybody on the machine.
umask 077
dir=$(mktemp -d "${TMPDIR:-/tmp}/ojs-tour.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cat > "$dir/curl" <<END
header = "Authorization: Bearer $AGQ_SESSION_KEY"
header = "Content-Type: application/openjobspec+json"
END

# send STATUS METHOD PATH [BODY]: the answer must have that status; it is left in $answer.
send() {
    want=$1 method=$2 path=$3
    shift 3
    printf '\n> %s %s\n' "$method" "$path${1:+ $1}"
    set -- -X "$method" ${1:+--data "$1"}
    got=$(curl -sS -K "$dir/curl" "$@" -o "$dir/answer" -w '%{http_code}' "$URL$path") ||
        fail "no answer came from agq at $URL. Start agq with --http, or set AGQ_URL to where it listens."
    answer=$(cat "$dir/answer")
    printf '< %s %s\n' "$got" "$answer"
    [ "$got" != 401 ] ||
        fail "agq at $URL does not know the key. Set AGQ_SESSION_KEY to the key that agq has."
    [ "$got" = "$want" ] || fail "$method $path was answered with $got, expected $want"
}

# holds TEXT: the answer must have that text.
holds() {
    case $answer in
        *"$1"*) ;;
        *) fail "the answer does not have $1" ;;
    esac
}

# first NAME: the first text of that name in the answer.
first() {
    printf '%s\n' "$answer" | grep -o "\"$1\":\"[^\"]*\"" | sed -n '1s/.*:"\(.*\)"/\1/p'
}

fetch() {
    send 200 POST /ojs/v1/jobs/fetch "{\"queues\":[\"$QUEUE\"],\"wait_ms\":10000}"
}

title 'What agq can do'
send 200 GET /ojs/manifest
holds '"specversion":"1.0"'

title 'A job is enqueued, fetched, done, and read'
send 201 POST /ojs/v1/jobs "{\"type\":\"tour.greet\",\"args\":[\"Ada\"],\"options\":{\"queue\":\"$QUEUE\"}}"
holds '"state":"available"'
job=$(first id)
fetch
holds "\"id\":\"$job\""
holds '"state":"active"'
send 200 POST "/ojs/v1/jobs/$job/ack" '{"result":{"greeting":"Good day, Ada"}}'
holds '"state":"completed"'
send 200 GET "/ojs/v1/jobs/$job"
holds '"result":{"greeting":"Good day, Ada"}'

title 'A job fails, is tried again, and fails for good'
retry='{"max_attempts":2,"initial_interval":"PT0.5S","jitter":false}'
options="{\"queue\":\"$QUEUE\",\"retry\":$retry}"
send 201 POST /ojs/v1/jobs "{\"type\":\"tour.fail\",\"args\":[],\"options\":$options}"
job=$(first id)
error='{"error":{"code":"no_luck","type":"Tour","message":"it did not work"}}'
fetch
holds '"attempt":1'
send 200 POST "/ojs/v1/jobs/$job/nack" "$error"
holds '"state":"retryable"'
fetch
holds "\"id\":\"$job\""
holds '"attempt":2'
send 200 POST "/ojs/v1/jobs/$job/nack" "$error"
holds '"state":"discarded"'

title 'A cron makes a job every night, until it is deleted'
template="{\"type\":\"tour.night\",\"args\":[],\"options\":{\"queue\":\"$QUEUE\"}}"
send 201 POST /ojs/v1/cron "{\"name\":\"$QUEUE\",\"expression\":\"0 3 * * *\",\"job_template\":$template}"
holds '"next_run_at":'
send 200 DELETE "/ojs/v1/cron/$QUEUE"
send 404 GET "/ojs/v1/cron/$QUEUE"

title 'A chain: the second job begins once the first is done'
options="\"options\":{\"queue\":\"$QUEUE\"}"
steps="[{\"type\":\"tour.first\",\"args\":[],$options},{\"type\":\"tour.second\",\"args\":[],$options}]"
send 201 POST /ojs/v1/workflows "{\"type\":\"chain\",\"name\":\"tour\",\"steps\":$steps}"
workflow=$(first id)
for step in first second; do
    fetch
    holds "\"type\":\"tour.$step\""
    send 200 POST "/ojs/v1/jobs/$(first id)/ack" '{}'
done
send 200 GET "/ojs/v1/workflows/$workflow"
holds '"state":"completed"'

printf '\ntour: all went well\n'
