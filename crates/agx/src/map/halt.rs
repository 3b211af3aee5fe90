//! When to give up early: `--halt now,fail=1`, as GNU Parallel writes it.

use std::str::FromStr;

/// When to end early, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Halt {
    /// Running jobs are ended, too.
    pub(crate) is_now: bool,
    what: What,
    bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Fail,
    Success,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    Count(u64),
    Percent(u64),
}

/// How a percentage may not be met too early: GNU Parallel looks at three jobs at least.
const LEAST_FOR_PERCENT: u64 = 3;

impl FromStr for Halt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "write WHEN,WHAT=N: WHEN is now or soon, WHAT is fail, success or done, N a number or a percentage, as \
             now,fail=1 or soon,fail=20%; without --halt all jobs run"
                .to_owned()
        };
        // GNU Parallel accepted these numbers before it had the words.
        let text = match text {
            "1" => "soon,fail=1",
            "2" => "now,fail=1",
            other => other,
        };
        let (when, rest) = text.split_once(',').ok_or_else(wrong)?;
        let (what, bound) = rest.split_once('=').ok_or_else(wrong)?;
        let is_now = match when {
            "now" => true,
            "soon" => false,
            _ => return Err(wrong()),
        };
        let what = match what {
            "fail" => What::Fail,
            "success" => What::Success,
            "done" => What::Done,
            _ => return Err(wrong()),
        };
        let number = |text: &str| text.parse().ok().filter(|&number: &u64| number > 0).ok_or_else(wrong);
        let bound = match bound.strip_suffix('%') {
            Some(percent) => Bound::Percent(number(percent)?),
            None => Bound::Count(number(bound)?),
        };
        Ok(Self { is_now, what, bound })
    }
}

impl Halt {
    /// Whether it is time, when so many of `total` known jobs have completed and failed.
    pub(crate) fn is_due(self, completed: u64, failed: u64, total: u64) -> bool {
        let count = match self.what {
            What::Fail => failed,
            What::Success => completed,
            What::Done => completed + failed,
        };
        match self.bound {
            Bound::Count(bound) => count >= bound,
            Bound::Percent(percent) => {
                completed + failed >= LEAST_FOR_PERCENT
                    && count.saturating_mul(100) >= total.saturating_mul(percent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Halt;

    #[test]
    fn it_is_due_at_its_bound_and_not_one_before() {
        let due = |text: &str, completed, failed, total| {
            text.parse::<Halt>().unwrap().is_due(completed, failed, total)
        };
        assert!(due("now,fail=2", 5, 2, 10) && !due("now,fail=2", 5, 1, 10));
        assert!(due("soon,success=1", 1, 0, 10) && !due("soon,success=1", 0, 9, 10));
        assert!(due("soon,done=3", 2, 1, 10) && !due("soon,done=3", 2, 0, 10));
        assert!(due("soon,fail=20%", 1, 2, 10) && !due("soon,fail=20%", 8, 1, 10));
        assert!(!due("soon,fail=20%", 0, 2, 2), "too few to tell");
        let short = |text: &str| text.parse::<Halt>().unwrap();
        assert_eq!([short("1"), short("2")], [short("soon,fail=1"), short("now,fail=1")]);
    }

    #[test]
    fn it_is_written_one_way() {
        for wrong in [
            "",
            "0",
            "3",
            "never",
            "now",
            "later,fail=1",
            "now,fail",
            "now,lost=1",
            "now,fail=0",
            "now,fail=x",
            "now,fail=%",
        ] {
            assert!(wrong.parse::<Halt>().unwrap_err().contains("now,fail=1"), "{wrong}");
        }
    }
}
