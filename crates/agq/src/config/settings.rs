//! Conversion of options to settings: fills in defaults, checks bounds, and converts seconds to
//! milliseconds.

use std::time::Duration;

use agenix_protocol::{
    ids::QueueName,
    limits::{DEFAULT_JOB_TIMEOUT_SECS, Limits},
};
use agenix_rules::fair_share::ShareTerms;
use anyhow::{Context, bail};

use super::{
    options::{DurabilityOption, Options},
    share_weight,
};
use crate::{
    settings::ServiceSettings,
    store::{Durability, OpenOptions},
};

/// Maximum time of a setting, a hundred years, in seconds.
const MAX_SECS: f64 = 3_153_600_000.0;
const DAY_SECS: f64 = 86_400.0;

/// Number of inputs that one write turns into jobs. Other writes can run between two of these
/// writes.
const INPUTS_AT_ONCE: usize = 500;

impl Options {
    /// Fails if a value is out of bounds.
    pub(super) fn settings(&self) -> anyhow::Result<ServiceSettings> {
        let interval = self.heartbeat_interval.unwrap_or(30.0);
        if !(0.001..=DAY_SECS).contains(&interval) {
            bail!("heartbeat-interval is {interval}: give seconds between 0.001 and 86400");
        }
        let factor = self.heartbeat_factor.unwrap_or(3);
        if factor == 0 {
            bail!("heartbeat-factor is 0: every worker would be dead immediately, give at least 1");
        }
        Ok(ServiceSettings {
            limits: self.limits(),
            inputs_at_once: INPUTS_AT_ONCE,
            heartbeat_interval_ms: millis(interval),
            heartbeat_factor: factor,
            job_timeout_ms: self.job_timeout.unwrap_or(DEFAULT_JOB_TIMEOUT_SECS).saturating_mul(1000),
            start_timeout_ms: bound("start-timeout", self.start_timeout.unwrap_or(60.0))?,
            approval_timeout_ms: bound("approval-timeout", self.approval_timeout.unwrap_or(DAY_SECS))?,
            login_timeout_ms: bound("login-timeout", self.login_timeout.unwrap_or(10.0))?,
            frame_timeout_ms: bound("frame-timeout", self.frame_timeout.unwrap_or(60.0))?,
            send_timeout_ms: bound("send-timeout", self.send_timeout.unwrap_or(60.0))?,
            keep_ended_ms: bound("keep-ended", self.keep_ended.unwrap_or(7.0 * DAY_SECS))?,
            keep_dead_ms: bound("keep-dead", self.keep_dead.unwrap_or(30.0 * DAY_SECS))?,
            keep_ended_count: self.keep_ended_count.unwrap_or(1_000_000),
            keep_blob_bytes: self.keep_blob_bytes.unwrap_or_default(),
            share_terms: self.share_terms()?,
            quarantine: !self.no_quarantine.unwrap_or_default(),
            has_fixed_workers: false,
            brpop_reply: self.brpop_reply.unwrap_or_default(),
            auth_errors: self.auth_errors.unwrap_or_default(),
        })
    }

    fn share_terms(&self) -> anyhow::Result<ShareTerms> {
        let weights = share_weight::parse(self.share_weights.as_deref().unwrap_or_default())?;
        let queues = self.priority_queues.as_deref().unwrap_or_default();
        let queues = queues.split(',').map(str::trim).filter(|queue| !queue.is_empty());
        let priority_queues = queues.map(|queue| Ok(queue.parse::<QueueName>()?.as_str().to_owned()));
        let priority_queues = priority_queues.collect::<anyhow::Result<_>>().context("priority-queues")?;
        Ok(ShareTerms { weights, priority_queues, ..ShareTerms::default() })
    }

    pub(super) fn opening(&self) -> OpenOptions {
        let defaults = OpenOptions::default();
        OpenOptions {
            durability: self.durability.map_or(defaults.durability, |durability| match durability {
                DurabilityOption::Promised => Durability::Promised,
                DurabilityOption::Always => Durability::Always,
                DurabilityOption::Interval => Durability::Interval,
            }),
            max_checked_bytes: self.max_checked_bytes.unwrap_or(defaults.max_checked_bytes),
        }
    }

    fn limits(&self) -> Limits {
        let defaults = Limits::default();
        Limits {
            max_message_bytes: self.max_message_bytes.unwrap_or(defaults.max_message_bytes),
            max_elements: self.max_elements.unwrap_or(defaults.max_elements),
            max_plan_bytes: self.max_plan_bytes.unwrap_or(defaults.max_plan_bytes),
            max_tasks: self.max_tasks.unwrap_or(defaults.max_tasks),
            max_inputs: self.max_inputs.unwrap_or(defaults.max_inputs),
            max_concurrency_keys: self.max_concurrency_keys.unwrap_or(defaults.max_concurrency_keys),
            max_pipeline: self.max_pipeline.unwrap_or(defaults.max_pipeline),
            max_connections_per_ip: self.max_connections_per_ip.unwrap_or(defaults.max_connections_per_ip),
            max_commands_per_sec: self.max_commands_per_second.unwrap_or(defaults.max_commands_per_sec),
            max_auth_failures: self.max_auth_failures.unwrap_or(defaults.max_auth_failures),
        }
    }
}

/// Converts a time limit to milliseconds; 0 stands for none. Fails if the limit is out of bounds.
fn bound(name: &str, secs: f64) -> anyhow::Result<u64> {
    if secs != 0.0 && !(0.001..=MAX_SECS).contains(&secs) {
        bail!("{name} is {secs}: give seconds between 0.001 and {MAX_SECS}, or 0 for no bound");
    }
    Ok(millis(secs))
}

/// Converts seconds to milliseconds. The value must be checked: not negative, and not too large.
fn millis(secs: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(secs).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Options;
    use crate::settings::{AuthErrors, PopReply, ServiceSettings};
    use crate::store::{Durability, OpenOptions};

    fn settings(text: &str) -> anyhow::Result<ServiceSettings> {
        toml::from_str::<Options>(text).unwrap().settings()
    }

    #[test]
    fn settings_have_the_documented_defaults() {
        let settings = settings("").unwrap();
        assert_eq!((settings.heartbeat_interval_ms, settings.heartbeat_factor), (30_000, 3));
        assert_eq!((settings.job_timeout_ms, settings.start_timeout_ms), (3_600_000, 60_000));
        assert_eq!((settings.keep_ended_ms, settings.keep_dead_ms), (604_800_000, 2_592_000_000));
        assert_eq!((settings.frame_timeout_ms, settings.send_timeout_ms), (60_000, 60_000));
        assert_eq!((settings.keep_ended_count, settings.quarantine), (1_000_000, true));
        assert_eq!((settings.brpop_reply, settings.auth_errors), (PopReply::Auto, AuthErrors::Auto));
        assert_eq!(settings.limits, agenix_protocol::limits::Limits::default());
    }

    #[test]
    fn explicit_settings_override_defaults_and_zero_disables_limits() {
        let text = "start-timeout = 0.3\nkeep-ended = 0\nkeep-dead = 1\nkeep-ended-count = 5\nno-quarantine = true\n\
                    brpop-reply = 'bulk'\nmax-tasks = 0\nmax-commands-per-second = 7\nmax-connections-per-ip = 8\n\
                    max-auth-failures = 9\nauth-errors = 'redis'\njob-timeout = 2\nsend-timeout = 0.5";
        let settings = settings(text).unwrap();
        assert_eq!((settings.start_timeout_ms, settings.job_timeout_ms), (300, 2000));
        assert_eq!((settings.keep_ended_ms, settings.keep_dead_ms), (0, 1000));
        assert_eq!(settings.send_timeout_ms, 500);
        assert_eq!((settings.keep_ended_count, settings.quarantine), (5, false));
        assert_eq!((settings.brpop_reply, settings.auth_errors), (PopReply::Bulk, AuthErrors::Redis));
        let limits = settings.limits;
        assert_eq!((limits.max_tasks, limits.max_commands_per_sec), (0, 7));
        assert_eq!((limits.max_connections_per_ip, limits.max_auth_failures), (8, 9));
    }

    #[test]
    fn share_terms_name_weights_and_queues() {
        let terms = settings("share-weights = 'night=3'\npriority-queues = 'gpu, fast'").unwrap().share_terms;
        assert_eq!(terms.weight_of(Some("share:night")), 3);
        assert_eq!(terms.priority_queues.into_iter().collect::<Vec<_>>(), ["fast", "gpu"]);
        let error = format!("{:#}", settings("priority-queues = 'a b'").unwrap_err());
        assert!(error.contains("priority-queues: queue 'a b' is not valid"), "{error}");
    }

    #[test]
    fn settings_that_nodes_share_are_named() {
        let text = "approval-timeout = 5\nno-quarantine = true\nshare-weights = 'night=3,ci=2'";
        let shown = settings(text).unwrap().shared_by_nodes();
        let end = "approval-timeout=5 no-quarantine=true share-weights=share:ci=2,share:night=3 \
                   priority-queues=none";
        assert!(shown.starts_with("heartbeat-interval=30 ") && shown.ends_with(end), "{shown}");
    }

    #[test]
    fn open_options_follow_the_settings() {
        let opening = |text| toml::from_str::<Options>(text).unwrap().opening();
        assert_eq!(
            opening(""),
            OpenOptions { durability: Durability::Promised, max_checked_bytes: 268_435_456 }
        );
        let explicit = opening("durability = 'always'\nmax-checked-bytes = 0");
        assert_eq!(explicit, OpenOptions { durability: Durability::Always, max_checked_bytes: 0 });
    }

    #[test]
    fn times_are_checked_at_their_bounds() {
        assert_eq!(settings("heartbeat-interval = 0.001").unwrap().heartbeat_interval_ms, 1);
        assert_eq!(settings("heartbeat-interval = 86400").unwrap().heartbeat_interval_ms, 86_400_000);
        assert_eq!(settings("start-timeout = 0.001").unwrap().start_timeout_ms, 1);
        assert_eq!(settings("keep-dead = 3153600000").unwrap().keep_dead_ms, 3_153_600_000_000);
        for (text, words) in [
            ("heartbeat-interval = 0.0009", "heartbeat-interval is 0.0009"),
            ("heartbeat-interval = 86401", "between 0.001 and 86400"),
            ("heartbeat-factor = 0", "heartbeat-factor is 0"),
            ("start-timeout = 0.0009", "or 0 for no bound"),
            ("start-timeout = -1", "start-timeout is -1"),
            ("keep-ended = nan", "keep-ended is NaN"),
            ("keep-dead = 3153600001", "keep-dead is 3153600001"),
        ] {
            let error = settings(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
