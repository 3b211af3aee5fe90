//! Policies: which tools a plan may run, with which arguments, files and variables.
//!
//! A policy lists tools, the options of each tool, and the types of all values, and refuses
//! everything else. The strictest decision wins: refuse over ask over allow. The crate reads no
//! file and runs no program. The crate judges text, so a symbolic link or a fault in a grammar
//! deceives the crate. The sandbox of the worker enforces the same limits in the kernel.
//!
//! ```
//! use agenix_policy::{Decision, Policy};
//!
//! let policy = Policy::parse(
//!     r#"
//!     version = 1
//!     use = ["uniq"]
//!     [paths]
//!     read = ["/data"]
//!     [tools.sort]
//!     options = ["-r", "-n", "-k KEYDEF"]
//!     args = "read*"
//!     "#,
//! )?;
//! let judged = |program: &str, args: &[&str]| {
//!     let args: Vec<String> = args.iter().map(ToString::to_string).collect();
//!     policy.judge_argv(program, &args)
//! };
//! assert_eq!(judged("sort", &["-rnk2,2", "/data/a"]).decision, Decision::Allow);
//! assert_eq!(judged("sh", &["-c", "id"]).decision, Decision::Refuse);
//!
//! let refused = judged("sort", &["-n", "-o", "/data/a"]);
//! assert_eq!(refused.findings[0].place, "args[1]");
//! assert_eq!(refused.findings[0].reason, "the option '-o' is not listed");
//! # Ok::<(), agenix_policy::InvalidPolicy>(())
//! ```

#![forbid(unsafe_code)]

mod argv;
mod asks;
mod examples;
mod inputs;
mod jq;
mod judge;
mod judgement;
mod library;
mod option;
mod path;
mod policy;
mod positional;
mod scope;
mod sed;
mod tool;
mod value_type;
mod word;

pub use asks::Asks;
pub use examples::{Example, FailedExample, library_examples};
pub use judgement::{Decision, FileUse, Finding, Judgement, TaskJudgement};
pub use path::Access;
pub use policy::{InvalidPolicy, Policy};
