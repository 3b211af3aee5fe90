//! Tests of the storage in a bucket, on a store in memory. The end-to-end tests have a real server.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use agenix_protocol::blob::BlobHash;
use bytes::Bytes;
use object_store::{
    ObjectStore, ObjectStoreExt,
    aws::AmazonS3Builder,
    memory::InMemory,
    path::Path,
    throttle::{ThrottleConfig, ThrottledStore},
};

use super::{BucketStorage, connection::for_large_files};
use crate::{
    blobs::{BlobError, BlobFile, BlobStorage, directory::BlobDirectory, location::BlobLocation},
    sync::lock,
};

/// Returns a storage in `s3://bucket/a/b`, with parts of 1,000 bytes.
fn storage(dir: &tempfile::TempDir, store: Arc<dyn ObjectStore>) -> BucketStorage {
    let location = BlobLocation::selected(Some("s3://bucket/a/b"), None).unwrap().unwrap();
    let BlobLocation::Bucket(address) = location else { panic!("{location} is a bucket") };
    let staging = BlobDirectory::open(dir.path()).unwrap();
    let mut storage = BucketStorage::new(Arc::clone(&store), store, &address, (staging, "memory"));
    storage.publications.part_bytes = 1000;
    storage
}

fn file(first: u8) -> BlobFile {
    let mut hash = [7; 32];
    hash[0] = first;
    BlobFile { hash: BlobHash(hash), suffix: "s".into() }
}

fn content(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at / 251) as u8 ^ at as u8).collect()
}

fn uploads(dir: &tempfile::TempDir) -> usize {
    std::fs::read_dir(dir.path().join("uploads")).unwrap().count()
}

#[tokio::test]
async fn bucket_returns_ranges_of_what_was_published() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(InMemory::new());
    let storage = storage(&dir, store.clone());
    for bytes in [0, 1, 1000, 1001, 5000, 5001] {
        let (file, content) = (file(1), content(bytes));
        storage.write("u", 0, content.clone()).await.unwrap();
        storage.publish("u", &file).await.unwrap();
        let path = Path::from(format!("a/b/01/{file}"));
        let object = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(object == content, "{bytes}");
        storage.discard("u").await.unwrap();
        assert_eq!(uploads(&dir), 0);
    }
    let read = storage.read(&file(1), vec![(0, 3), (4990, 11)]).await.unwrap();
    assert_eq!(read, [content(5001).slice(..3), content(5001).slice(4990..)]);
    let name = format!("s3://bucket/a/b/01/{}", file(1));
    let short = storage.read(&file(1), vec![(4990, 12)]).await.unwrap_err();
    assert_eq!(short, BlobError::Lost(format!("{name}: the object has too few bytes")));
    storage.remove(1, &file(1).to_string()).await.unwrap();
    storage.remove(1, &file(1).to_string()).await.unwrap();
    let missing = storage.read(&file(1), vec![(0, 1)]).await.unwrap_err();
    assert!(matches!(&missing, BlobError::Lost(text) if text.starts_with(&format!("{name}: "))), "{missing}");
}

#[tokio::test]
async fn bucket_lists_the_objects_of_a_part() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(InMemory::new());
    let storage = storage(&dir, store.clone());
    for path in ["a/b/01/other", "a/b/01/x/y", "a/b/010/no", "a/b/02/no", "01/no"] {
        store.put(&Path::from(path), Bytes::from_static(b"abc").into()).await.unwrap();
    }
    let mut listed = storage.list(1).await.unwrap();
    listed.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<_> = listed.iter().map(|file| (file.name.as_str(), file.bytes)).collect();
    assert_eq!(names, [("other", 3), ("x/y", 3)]);
    let dated = store.head(&Path::from("a/b/01/other")).await.unwrap().last_modified;
    let tolerance = Duration::from_hours(24);
    assert_eq!(listed[0].modified_at.0, (dated + tolerance).timestamp_millis() as u64);
    storage.remove(1, "x/y").await.unwrap();
    assert_eq!(storage.list(1).await.unwrap().len(), 1);
    assert!(storage.list(3).await.unwrap().is_empty());
    storage.probe().await.unwrap();
    assert!(storage.list(0).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_long_publication_goes_on_while_nobody_waits() {
    let dir = tempfile::tempdir().unwrap();
    let slow = ThrottleConfig { wait_put_per_call: Duration::from_millis(50), ..ThrottleConfig::default() };
    let mut storage = storage(&dir, Arc::new(ThrottledStore::new(InMemory::new(), slow)));
    storage.write("u", 0, content(10)).await.unwrap();
    storage.publications.max_wait = Duration::ZERO;
    let unfinished = storage.publish("u", &file(1)).await.unwrap_err();
    assert!(matches!(&unfinished, BlobError::Unpublished(text) if text.ends_with("it is still being sent")));
    storage.publications.max_wait = Duration::from_secs(60);
    storage.publish("u", &file(1)).await.unwrap();
    assert_eq!(storage.read(&file(1), vec![(0, 10)]).await.unwrap(), [content(10)]);
}

#[tokio::test]
async fn a_failed_publication_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Arc::new(InMemory::new()));
    for _again in 0..2 {
        let failed = storage.publish("u", &file(1)).await.unwrap_err();
        assert!(matches!(&failed, BlobError::Unpublished(text) if text.contains("No such file")), "{failed}");
    }
    storage.write("u", 0, content(10)).await.unwrap();
    storage.publish("u", &file(1)).await.unwrap();
}

/// Starts a server that takes files in parts, and that refuses the second part four times. Returns
/// the URL of the server, and the numbers of the parts that it gets.
fn busy_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let parts = Arc::<Mutex<Vec<String>>>::default();
    let sent = Arc::clone(&parts);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let lines = stream.by_ref().lines().map(Result::unwrap);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            let Some(request) = head.first() else { continue };
            let length = |line: &String| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok();
            let length: u64 = head.iter().find_map(length).unwrap();
            std::io::copy(&mut stream.by_ref().take(length), &mut std::io::sink()).unwrap();
            let part = request.split_once("partNumber=").and_then(|(_, rest)| rest.split(['&', ' ']).next());
            let (status, body) = if let Some(part) = part {
                let mut sent = lock(&sent);
                sent.push(part.to_owned());
                let is_refused = part == "2" && sent.iter().filter(|sent| *sent == "2").count() <= 4;
                (if is_refused { "503 Slow Down" } else { "200 OK" }, "")
            } else if request.contains("?uploads") {
                let body =
                    "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
                ("200 OK", body)
            } else {
                ("200 OK", "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
            };
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status}\r\nETag: e\r\nContent-Length: {length}\r\nConnection: close");
            write!(stream.get_mut(), "{head}\r\n\r\n{body}").unwrap();
        }
    });
    (url, parts)
}

#[tokio::test]
async fn a_part_is_sent_again_until_a_busy_server_takes_it() {
    let dir = tempfile::tempdir().unwrap();
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let (url, parts) = busy_server();
    let builder = AmazonS3Builder::new().with_bucket_name("bucket").with_endpoint(url).with_allow_http(true);
    let builder = builder.with_access_key_id("key").with_secret_access_key("secret");
    let storage = storage(&dir, Arc::new(for_large_files(builder).build().unwrap()));
    storage.write("u", 0, content(2500)).await.unwrap();
    storage.publish("u", &file(1)).await.unwrap();
    let mut parts = lock(&parts).clone();
    parts.sort();
    assert_eq!(parts, ["1", "2", "2", "2", "2", "2", "3"]);
}
