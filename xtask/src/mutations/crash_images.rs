//! Mutations that crash images notice: mutations of the order of writes to disk.

use super::Mutation;

/// Mutations of the blobs of agq on its own file.
pub(super) static CRASH_IMAGES: [Mutation; 5] = [
    Mutation {
        name: "the record of a blob is acknowledged before it is on disk",
        file: "crates/agq/src/store/redb/records.rs",
        from: "self.write(AckLevel::Durable, move |txn| txn.decide_document(kind, &id, &rule))",
        to: "self.write(AckLevel::Applied, move |txn| txn.decide_document(kind, &id, &rule))",
    },
    Mutation {
        name: "the removal of a job with blobs is acknowledged before it is on disk",
        file: "crates/agq/src/store/redb/records.rs",
        from: "self.write(AckLevel::Durable, move |txn| txn.forget_job(&job_id, status))",
        to: "self.write(AckLevel::Applied, move |txn| txn.forget_job(&job_id, status))",
    },
    Mutation {
        name: "the file of a blob is removed before its record",
        file: "crates/agq/src/service/blob_sweep.rs",
        from: "app.store.update_document(DocumentKind::Blob, id, Box::new(rule)).await??;",
        to: "if let Ok(hash) = id.parse::<BlobHash>() {\n        storage.remove(hash.0[0], &BlobFile::of(hash, blob).to_string()).await?;\n    }\n    app.store.update_document(DocumentKind::Blob, id, Box::new(rule)).await??;",
    },
    Mutation {
        name: "a sweep removes the files of blobs that have a record",
        file: "crates/agq/src/service/blob_sweep.rs",
        from: "Ok(record(app, file.hash).await?.is_some_and(|blob| blob.suffix == file.suffix))",
        to: "Ok(record(app, file.hash).await?.is_some_and(|blob| blob.suffix != file.suffix))",
    },
    Mutation {
        name: "the record of a blob is stored before its file is published",
        file: "crates/agq/src/service/uploads.rs",
        from: "storage.publish(name, &BlobFile { hash, suffix: name.to_owned() }).await?;",
        to: "let early = name.to_owned();\n    change_record(app, hash, move |_| Some(StoredBlob::new(length, &early, now))).await?;\n    storage.publish(name, &BlobFile { hash, suffix: name.to_owned() }).await?;",
    },
];
