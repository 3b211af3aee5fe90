"""The tasks of Celery and RQ: processes without a shell, whose output is the result."""

import subprocess


def true(word):
    subprocess.run(["true", word], check=True)


def sort_uniq(path):
    with subprocess.Popen(["sort", path], stdout=subprocess.PIPE) as sort:
        counted = subprocess.run(["uniq", "-c"], stdin=sort.stdout, stdout=subprocess.PIPE, check=True)
    if sort.returncode != 0:
        raise RuntimeError(f"sort ended with {sort.returncode}")
    return counted.stdout.decode()
