//! Mutations that seeds of the simulation notice on redb alone.

use super::Mutation;

/// Mutations of agq on its own file.
pub(super) static OF_SEEDS: [Mutation; 30] = [
    Mutation {
        name: "agq panics where a line of its log cannot be written",
        file: "crates/agq/src/startup/logging.rs",
        from: ".log_internal_errors(false)",
        to: "",
    },
    Mutation {
        name: "schedules wait for a time that a clock which was ahead has named",
        file: "crates/agq/src/background/reaper.rs",
        from: "schedules::reschedule_all(app).await?;",
        to: "",
    },
    Mutation {
        name: "the fsync of a batch is left out",
        file: "crates/agq/src/store/redb/engine/commit.rs",
        from: "self.wal.sync()?;",
        to: "self.wal.write()?;",
    },
    Mutation {
        name: "the WAL is truncated before the database is on disk",
        file: "crates/agq/src/store/redb/engine/recovery.rs",
        from: "transaction.set_durability(Durability::Immediate)?;",
        to: "transaction.set_durability(Durability::None)?;",
    },
    Mutation {
        name: "a torn record of the WAL is accepted",
        file: "crates/agq/src/store/redb/engine/wal/mod.rs",
        from: "if sum != checksum(covered, content).to_le_bytes() {",
        to: "if false && sum != checksum(covered, content).to_le_bytes() {",
    },
    Mutation {
        name: "the database does not say which records it holds",
        file: "crates/agq/src/store/redb/engine/recovery.rs",
        from: "meta.insert(WAL_NEXT, next)?;",
        to: "let _ = next;",
    },
    Mutation {
        name: "a removal is not logged",
        file: "crates/agq/src/store/redb/engine/memtable.rs",
        from: "let value = value.as_deref();",
        to: "let value = value.as_deref();\n                if value.is_none() {\n                    continue;\n                }",
    },
    Mutation {
        name: "what is removed stays in the database",
        file: "crates/agq/src/store/redb/engine/apply_rows.rs",
        from: "} else if table.remove(K::from_bytes(first.bytes()))?.is_none() {",
        to: "} else if false {",
    },
    Mutation {
        name: "what is recent is forgotten when the database is brought up to date",
        file: "crates/agq/src/store/redb/engine/snapshot/mod.rs",
        from: "kept.snapshot().write_recent(&transaction)?;\n        commit(transaction)?;",
        to: "commit(transaction)?;",
    },
    Mutation {
        name: "a half of the WAL is reused before its content is in the database",
        file: "crates/agq/src/store/redb/engine/commit.rs",
        from: "self.flusher.wait()?;\n        self.wal.switch_half()?;",
        to: "self.wal.switch_half()?;",
    },
    Mutation {
        name: "what comes while the database is brought up to date is forgotten",
        file: "crates/agq/src/store/redb/engine/snapshot/mod.rs",
        from: "now.recent.split_off(newer)",
        to: "now.recent.split_off(newer.min(0))",
    },
    Mutation {
        name: "a lane's first job is taken for one that is not the first",
        file: "crates/agq/src/store/redb/txn/lanes.rs",
        from: "let place = self.heads.partition_point(|(other, _)| *other < turn);",
        to: "let place = self.heads.len();",
    },
    Mutation {
        name: "the end of a job is acknowledged before it is on disk",
        file: "crates/agq/src/service/jobs.rs",
        from: "if is_end { AckLevel::Durable } else { AckLevel::Visible }",
        to: "if is_end { AckLevel::Visible } else { AckLevel::Visible }",
    },
    Mutation {
        name: "a report's attempt is not compared",
        file: "crates/rules/src/job/report.rs",
        from: "&& reported != job.attempt",
        to: "&& reported > job.attempt",
    },
    Mutation {
        name: "a report's holder is not compared",
        file: "crates/rules/src/job/report.rs",
        from: "if !job.is_held_by(who) {",
        to: "if false && !job.is_held_by(who) {",
    },
    Mutation {
        name: "those who wait for jobs are not woken",
        file: "crates/agq/src/store/redb/txn/mod.rs",
        from: "self.arrived.jobs = true;",
        to: "self.arrived.jobs = false;",
    },
    Mutation {
        name: "those who wait for elements are not woken",
        file: "crates/agq/src/store/notifications.rs",
        from: "lists.extend(arrived.lists);\n            self.lists.notify_one();",
        to: "lists.extend(arrived.lists);",
    },
    Mutation {
        name: "a heartbeat does not renew a worker's lease",
        file: "crates/rules/src/worker.rs",
        from: "seen.last_seen_at = now;",
        to: "",
    },
    Mutation {
        name: "a job that is claimed stays in the ready index",
        file: "crates/agq/src/store/redb/txn/mod.rs",
        from: "self.tables.ready.remove((lane, rank, seq));",
        to: "",
    },
    Mutation {
        name: "what nobody received does not go back",
        file: "crates/agq/src/waiters/handoff.rs",
        from: "let _stopping = self.back.send(content);",
        to: "drop(content);",
    },
    Mutation {
        name: "whose time is over goes before the matchmaker knows",
        file: "crates/agq/src/waiters/mod.rs",
        from: "leave();\n            get.await.ok()",
        to: "leave();\n            get.close();\n            get.try_recv().ok()",
    },
    Mutation {
        name: "the jobs of dead workers stay theirs",
        file: "crates/agq/src/background/reaper.rs",
        from: "Some(_dead) => requeue_lost(app, &holder).await?,",
        to: "Some(_dead) => continue,",
    },
    Mutation {
        name: "an action's tally is not moved along with its jobs",
        file: "crates/agq/src/store/redb/txn/mod.rs",
        from: "if before.status() != job.status() {",
        to: "if before.status() != job.status() && !job.is_ended() {",
    },
    Mutation {
        name: "a job is tried once more than it may be",
        file: "crates/rules/src/job/report.rs",
        from: "!is_final && job.failures <= job.max_retries;",
        to: "!is_final && job.failures <= job.max_retries + 1;",
    },
    Mutation {
        name: "nobody notices that the clock was set back",
        file: "crates/agq/src/background/reaper.rs",
        from: "if now < latest {",
        to: "if false && now < latest {",
    },
    Mutation {
        name: "the input blobs of a removed job stay counted",
        file: "crates/agq/src/store/redb/txn/jobs.rs",
        from: "self.release_blobs(DocumentKind::JobInputs, &job.job_id)?;",
        to: "",
    },
    Mutation {
        name: "the blobs of a removed job stay counted",
        file: "crates/agq/src/store/redb/txn/jobs.rs",
        from: "self.release_blobs(DocumentKind::JobBlobs, &job.job_id)?;",
        to: "",
    },
    Mutation {
        name: "a report may name a blob without a record",
        file: "crates/agq/src/store/redb/txn/blobs.rs",
        from: "if self.blob(*hash)?.is_none() {",
        to: "if false && self.blob(*hash)?.is_none() {",
    },
    Mutation {
        name: "a blob is acknowledged before it is published",
        file: "crates/agq/src/service/uploads.rs",
        from: "storage.publish(name, &BlobFile { hash, suffix: name.to_owned() }).await?;",
        to: "",
    },
    Mutation {
        name: "a connection without a worker gets jobs that need a sandbox",
        file: "crates/rules/src/capability.rs",
        from: "|name: &String| profile_of_sandbox_tag(name).is_none() && secret_of_tag(name).is_none();",
        to: "|_name: &String| true;",
    },
];
