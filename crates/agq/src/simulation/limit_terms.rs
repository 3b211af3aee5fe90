//! Limits and quantities that plans and actions name in some worlds. There is no random draw for
//! limits and quantities, so that seeds without limits stay as they are.

/// Returns true if plans and actions of a seed have limits: every second seed, among them all with
/// a budget or with sandbox profiles.
pub(super) fn has_limits(seed: u64) -> bool {
    seed % 2 == 1
}

/// Returns the fields of plan `number` with a limit of all its jobs, if it has one.
pub(super) fn of_plan(number: usize) -> &'static str {
    ["", "", r#","max_running":2"#, r#","rate":"1/s""#][number % 4]
}

/// Returns true if a plan has a limit, so that its actions may have none.
pub(super) fn is_limited(plan: &str) -> bool {
    [r#""max_running""#, r#""rate""#].iter().any(|field| plan.contains(field))
}

/// Returns the fields of action `number` with a limit of its jobs, if it has one: a maximum of
/// running jobs, a concurrency key that several actions use, or a rate.
pub(super) fn of_action(number: usize) -> &'static str {
    [
        "",
        r#","max_running":1"#,
        r#","concurrency":{"key":"one-{{input.k}}","max_running":1}"#,
        r#","concurrency":{"key":"two-{{input.k}}","max_running":2}"#,
        r#","rate":"2/3s""#,
    ][number / 3 % 5]
}

/// Returns the quantities of the jobs of plan `number`, little or much of them.
pub(super) fn quantities(number: usize, is_much: bool) -> &'static str {
    match (is_much, number % 3) {
        (false, 0) => r#","requires":{"resources":{"cpus":0.75}}"#,
        (false, 1) => r#","requires":{"resources":{"gpus":1}}"#,
        (false, _) => r#","requires":{"resources":{"cpus":1,"gpus":1}}"#,
        (true, 0) => r#","requires":{"resources":{"gpus":2}}"#,
        (true, _) => r#","requires":{"resources":{"cpus":2}}"#,
    }
}

/// Returns the input `n` of a submission, with the field that concurrency keys use.
pub(super) fn input(has_limits: bool, name: &str, n: usize) -> String {
    let field = if has_limits { [r#","k":"x""#, r#","k":"y""#][n % 2] } else { "" };
    format!(r#"{{"n":"{name}"{field}}}"#)
}
