#!/usr/bin/env python3
"""Writes runs.txt, to which crates/rules/tests/cron.rs holds the schedules: `python3 generate.py > runs.txt`.

Every minute of real time around changes of the clock is played as cron's main loop plays it (cronie 1.7, src/cron.c; cron(8), "Daylight
Saving Time and other time changes"), and every day of the calendar is looked at as its find_jobs looks at it:
- a job with a `*` at the beginning of its hour field runs whenever the clock shows a time of its own;
- any other job runs once for each of its times: those that a change of less than three hours leaves out are made up for in the first
  minute after it, those that come again are not run again;
- a day counts when day of the month AND weekday match where one of the two fields begins with `*`, else when one of them does.
In two things this is not cronie: there a `*` at the beginning of the minute field lets a job follow the clock, too, and a job that is
made up for several times in one minute runs several times. Python's croniter is not used: it knows none of these rules.
"""
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

ZONES = """Europe/Berlin Europe/London Europe/Dublin America/New_York America/Chicago America/St_Johns America/Sao_Paulo
America/Havana America/Santiago Australia/Lord_Howe Australia/Sydney Australia/Adelaide Pacific/Apia Pacific/Auckland
Pacific/Chatham Asia/Tokyo Asia/Kathmandu Asia/Tehran Asia/Beirut Africa/Cairo Africa/Casablanca Antarctica/Troll""".split()
AROUND_CHANGES = ["30 2 * * *", "30 2,3 * * *", "15,45 2 * * *", "*/20 2 * * *", "*/20 1-3 * * *", "0 0 * * *", "30 0 * * *", "5 1,2 * * *",
                  "30 * * * *", "0 */2 * * *", "15 2 * * 0", "45 3 1-7 * *"]
IN_THE_CALENDAR = ["0 0 */2 * 1", "0 0 1 * */2", "0 0 13 * 5", "0 0 1,15 * 1", "0 0 * * 7", "0 0 29 2 *", "0 0 31 * *", "0 0 1-7 * 1-5",
                   "0 0 * */5 6", "5 4 */10 2 *", "0 12 29 2 1", "0 0 31 */2 *"]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
YEARS = range(1990, 2041)


def field(text, low, high):
    values = set()
    for part in text.split(","):
        part, _, step = part.partition("/")
        first, _, last = part.partition("-")
        first, last = (low, high) if part == "*" else (int(first), int(last or first))
        values.update(range(first, last + 1, int(step or 1)))
    return values


class Job:
    def __init__(self, expression):
        texts = expression.split()
        limits = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
        self.minutes, self.hours, self.days, self.months, weekdays = (field(t, *l) for t, l in zip(texts, limits))
        self.weekdays = {day % 7 for day in weekdays}
        self.is_wild, self.needs_both = texts[1][0] == "*", "*" in (texts[2][0], texts[4][0])

    def is_day(self, at):
        day, weekday = at.day in self.days, at.isoweekday() % 7 in self.weekdays
        return at.month in self.months and (day and weekday if self.needs_both else day or weekday)

    def is_time(self, at):
        return at.minute in self.minutes and at.hour in self.hours and self.is_day(at)


def played(job, zone, start, minutes):
    """The minutes after `start` in which the job runs."""
    def shown(at):
        return at.astimezone(zone).replace(tzinfo=None)

    runs, latest = [], shown(start - MINUTE)
    for number in range(minutes):
        wall = shown(start + number * MINUTE)
        ahead = (wall - latest) // MINUTE
        if job.is_wild:
            is_run = job.is_time(wall)
        elif ahead <= 0:
            is_run = False  # It was this time before.
        else:
            missed = range(1, ahead + 1) if ahead < 180 else [ahead]
            is_run = any(job.is_time(latest + by * MINUTE) for by in missed)
        latest = max(latest, wall)
        if is_run:
            runs.append(number)
    return runs


def changes(zone):
    """The minutes of real time in which the offset of a zone changes."""
    at, end = datetime(YEARS[0], 1, 1, tzinfo=timezone.utc), datetime(YEARS[-1], 12, 31, tzinfo=timezone.utc)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + DAY).astimezone(zone).utcoffset():
            before, minute = at.astimezone(zone).utcoffset(), at
            while minute.astimezone(zone).utcoffset() == before:
                minute += MINUTE
            yield minute
        at += DAY


def next_run(job, after):
    run = after.replace(hour=min(job.hours), minute=min(job.minutes))
    while run <= after or not job.is_day(run):
        run += DAY
    return run


def stamp(at):
    return at.strftime("%Y-%m-%dT%H:%M:00Z")


print("# Zone and beginning; then for each expression the minutes from there on in which it runs. Made by generate.py.")
for name in ZONES:
    zone, sampled = ZoneInfo(name), list(changes(ZoneInfo(name)))
    # An odd step takes changes forward and back by turns.
    sampled = sampled[::max(1, len(sampled) // 14) | 1] or [datetime(2024, 3, 31, 1, tzinfo=timezone.utc)]
    for at in sampled:
        start = at - timedelta(hours=5)
        print(name, stamp(start), sep="\t")
        for expression in AROUND_CHANGES:
            runs = " ".join(map(str, played(Job(expression), zone, start, 600)))
            if runs:
                print("", expression, runs, sep="\t")
print("# What the calendar says in UTC: an expression, a day, and the run after it.")
for expression in IN_THE_CALENDAR:
    job, at = Job(expression), datetime(1990, 1, 1, tzinfo=timezone.utc)
    for year in [*range(1990, 2041, 5), 2096, 2099]:
        for month in (2, 7):
            after = datetime(year, month, 28, tzinfo=timezone.utc)
            print("calendar", stamp(after), expression, stamp(next_run(job, after)), sep="\t")
