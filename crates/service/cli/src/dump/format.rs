//! Names and contents of the files of a dump.
//!
//! Invariants: a name made of a collection's is read back as that collection's; the metadata are byte for byte what
//! mongodump writes of the same collection; a file that is cut off or damaged is an error that says where, never a
//! shorter collection.

use super::DOCUMENT_BYTES_MAX;
use base64::Engine as _;
use bson::{Bson, Document, RawDocumentBuf, doc};
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use sha1::{Digest, Sha1};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest file name before its endings: 255 bytes less `.metadata.json.gz`.
const NAME_BYTES_MAX: usize = 238;
/// Of a longer one, so much is kept before the hash of the whole.
const NAME_BYTES_KEPT: usize = 208;
/// What is read at once.
const READ_BYTES: usize = 1 << 20;
/// What is written at once, and then on disk. A gigabyte that was left to the end is what everybody's next sync waits behind, on whatever
/// member has that disk.
const WRITTEN_BYTES: usize = 256 << 10;

/// The file name for a collection, without endings: what is not a letter, a digit or one of `-_.~` is `%XX`, a space `+`.
pub fn file_name_of(collection: &str) -> String {
    let mut name = String::with_capacity(collection.len());
    for byte in collection.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => name.push(char::from(byte)),
            b' ' => name.push('+'),
            other => name.push_str(&format!("%{other:02X}")),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        let hash = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha1::digest(collection.as_bytes()));
        name.truncate(NAME_BYTES_KEPT);
        name = format!("{name}%24{hash}");
    }
    name
}

/// The collection that a file name (without endings) stands for; `None` if it was cut and only the metadata know.
///
/// # Errors
/// If it is no such name.
pub fn collection_of(name: &str) -> Result<Option<String>, String> {
    if name.len() == NAME_BYTES_MAX && name.contains("%24") {
        return Ok(None);
    }
    let wrong = || format!("'{name}' is not the name of a collection's file");
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next().ok_or_else(wrong)?, rest.next().ok_or_else(wrong)?];
                let digits = std::str::from_utf8(&digits).map_err(|_| wrong())?;
                u8::from_str_radix(digits, 16).map_err(|_| wrong())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map(Some).map_err(|_| wrong())
}

/// What a dump says about one collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// As `create` takes them.
    pub options: Document,
    /// As `listIndexes` gives them.
    pub indexes: Vec<Document>,
    /// In hexadecimal digits; views have none.
    pub uuid: Option<String>,
    /// The whole name.
    pub collection: String,
    /// `collection` or `view`.
    pub kind: String,
}

impl Metadata {
    /// Whether it is a view's.
    pub fn is_view(&self) -> bool {
        self.kind == "view" || self.options.contains_key("viewOn")
    }

    /// Canonical extended JSON on one line.
    pub fn to_json(&self) -> String {
        let mut document = Document::new();
        if !self.options.is_empty() {
            document.insert("options", self.options.clone());
        }
        document.insert("indexes", self.indexes.clone());
        if let Some(uuid) = &self.uuid {
            document.insert("uuid", uuid);
        }
        document.insert("collectionName", &self.collection);
        if !self.kind.is_empty() {
            document.insert("type", &self.kind);
        }
        Bson::Document(document).into_canonical_extjson().to_string()
    }

    /// Reads extended JSON, canonical or relaxed.
    ///
    /// # Errors
    /// If it is none, or not of a collection.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let Ok(Bson::Document(document)) = Bson::try_from(value) else {
            return Err("is no document in extended JSON".into());
        };
        let indexes = document.get_array("indexes").map(Vec::as_slice).unwrap_or_default();
        let indexes = indexes.iter().map(|index| index.as_document().cloned());
        Ok(Self {
            options: document.get_document("options").cloned().unwrap_or_default(),
            indexes: indexes.collect::<Option<_>>().ok_or("holds an index that is no document")?,
            uuid: document.get_str("uuid").ok().map(str::to_owned),
            collection: document.get_str("collectionName").unwrap_or_default().to_owned(),
            kind: document.get_str("type").unwrap_or_default().to_owned(),
        })
    }
}

/// The text of `prelude.json`.
pub fn prelude(server_version: &str) -> String {
    let tool = format!("baton-{}", env!("CARGO_PKG_VERSION"));
    Bson::Document(doc! { "ServerVersion": server_version, "ToolVersion": tool }).into_canonical_extjson().to_string()
}

/// A file of a dump that is being written.
pub struct Writer {
    inner: Inner,
    path: String,
}

enum Inner {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl Writer {
    /// Creates the file.
    ///
    /// # Errors
    /// With a text that names it.
    pub fn create(path: &Path, gzip: bool) -> Result<Self, String> {
        let name = path.display().to_string();
        let mut options = File::options();
        options.write(true).create(true).truncate(true).custom_flags(libc::O_DSYNC);
        let file = options.open(path).map_err(|e| format!("{name}: {e}"))?;
        let file = BufWriter::with_capacity(WRITTEN_BYTES, file);
        let inner =
            if gzip { Inner::Gzip(GzEncoder::new(file, flate2::Compression::default())) } else { Inner::Plain(file) };
        Ok(Self { inner, path: name })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// With a text that names the file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let written = match &mut self.inner {
            Inner::Plain(file) => file.write_all(bytes),
            Inner::Gzip(file) => file.write_all(bytes),
        };
        written.map_err(|e| format!("{}: {e}; is the disk full?", self.path))
    }

    /// Ends the file and has it on disk.
    ///
    /// # Errors
    /// With a text that names the file.
    pub fn finish(self) -> Result<(), String> {
        let path = self.path;
        let flushed = match self.inner {
            Inner::Plain(file) => Ok(file),
            Inner::Gzip(file) => file.finish(),
        };
        flushed
            .and_then(|file| file.into_inner().map_err(std::io::IntoInnerError::into_error))
            .and_then(|file| file.sync_all())
            .map_err(|e| format!("{path}: {e}; is the disk full?"))
    }
}

/// Counts the bytes that come from a file, as they lie there.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

fn open(path: &Path, gzip: bool, count: Arc<AtomicU64>) -> Result<Box<dyn Read + Send>, String> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let counted = BufReader::with_capacity(READ_BYTES, Counted { inner: file, count });
    Ok(if gzip { Box::new(BufReader::new(MultiGzDecoder::new(counted))) } else { Box::new(counted) })
}

/// Reads a whole small file.
///
/// # Errors
/// With a text that names it.
pub fn read_text(path: &Path, gzip: bool) -> Result<String, String> {
    let mut text = String::new();
    let mut file = open(path, gzip, Arc::default())?;
    file.read_to_string(&mut text).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text)
}

/// The documents of a file, one after the other.
pub struct Documents {
    file: Box<dyn Read + Send>,
    path: String,
    offset: u64,
}

impl Documents {
    /// Opens the file; `count` counts the bytes read of it, as they lie on disk.
    ///
    /// # Errors
    /// With a text that names it.
    pub fn open(path: &Path, gzip: bool, count: Arc<AtomicU64>) -> Result<Self, String> {
        Ok(Self { file: open(path, gzip, count)?, path: path.display().to_string(), offset: 0 })
    }

    fn damaged(&self, why: &str) -> String {
        format!(
            "{}: at byte {}: {why}. The file is damaged or was cut off: take the dump again, or restore the other \
             collections one by one with --db and --collection",
            self.path, self.offset
        )
    }

    /// The next document; `None` at the end.
    ///
    /// # Errors
    /// If no document is there, and the end neither.
    pub fn next(&mut self) -> Result<Option<RawDocumentBuf>, String> {
        let mut length = [0; 4];
        let mut have = 0;
        while have < 4 {
            match self.file.read(&mut length[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.damaged("the file ends within a document's length")),
                Ok(count) => have += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.damaged(&error.to_string())),
            }
        }
        let size = usize::try_from(i32::from_le_bytes(length)).unwrap_or(0);
        if !(5..=DOCUMENT_BYTES_MAX).contains(&size) {
            let claimed = i32::from_le_bytes(length);
            return Err(self.damaged(&format!("a document that claims to be {claimed} bytes long")));
        }
        let mut bytes = vec![0; size];
        bytes[..4].copy_from_slice(&length);
        self.file.read_exact(&mut bytes[4..]).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.damaged(&format!("the file ends within a document of {size} bytes"))
            }
            _ => self.damaged(&error.to_string()),
        })?;
        let document = RawDocumentBuf::from_bytes(bytes).map_err(|error| self.damaged(&error.to_string()))?;
        self.offset += size as u64;
        Ok(Some(document))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_mongodump_does_and_read_back() {
        for (collection, name) in
            [("plain", "plain"), ("a b/ü", "a+b%2F%C3%BC"), ("x.y-z_~", "x.y-z_~"), ("50%+", "50%25%2B")]
        {
            assert_eq!(file_name_of(collection), name);
            assert_eq!(collection_of(name), Ok(Some(collection.to_owned())));
        }
        assert!(collection_of("50%").is_err());
        assert!(collection_of("%FF").is_err());
    }

    #[test]
    fn a_name_too_long_for_a_file_ends_in_its_hash() {
        let (one, other) = ("ü".repeat(100), "ü".repeat(100) + "x");
        let name = file_name_of(&one);
        assert_eq!(name.len(), NAME_BYTES_MAX);
        assert!(name.starts_with("%C3%BC") && name[NAME_BYTES_KEPT..].starts_with("%24"));
        assert_ne!(name, file_name_of(&other));
        assert_eq!(collection_of(&name), Ok(None));
    }

    #[test]
    fn metadata_are_written_as_mongodump_writes_them_and_read_back() {
        let metadata = Metadata {
            options: doc! { "capped": true, "size": 65536, "validator": { "n": { "$gt": 1i64 } } },
            indexes: vec![doc! { "v": 2, "key": { "b": -1, "a": 1.0 }, "name": "b_-1_a_1", "sparse": true }],
            uuid: Some("f70aa2b102c3414fa4a7393fdf3e15f2".into()),
            collection: "a b/ü".into(),
            kind: "collection".into(),
        };
        let text = concat!(
            r#"{"options":{"capped":true,"size":{"$numberInt":"65536"},"validator":{"n":{"$gt":{"$numberLong":"1"}}}},"#,
            r#""indexes":[{"v":{"$numberInt":"2"},"key":{"b":{"$numberInt":"-1"},"a":{"$numberDouble":"1.0"}},"#,
            r#""name":"b_-1_a_1","sparse":true}],"uuid":"f70aa2b102c3414fa4a7393fdf3e15f2","#,
            r#""collectionName":"a b/ü","type":"collection"}"#
        );
        assert_eq!(metadata.to_json(), text);
        assert_eq!(Metadata::from_json(text), Ok(metadata));
        let relaxed = Metadata::from_json(r#"{"indexes":[{"v":2,"key":{"z":1,"a":1}}]}"#).unwrap();
        assert_eq!(relaxed.indexes[0].get_document("key").unwrap().keys().collect::<Vec<_>>(), ["z", "a"]);
        assert!(Metadata::from_json("[]").is_err());
        assert!(Metadata::from_json(r#"{"indexes":[1]}"#).is_err());
    }

    #[test]
    fn a_file_cut_anywhere_is_an_error_that_says_where() {
        let directory = tempfile::tempdir().unwrap();
        let documents = [doc! { "_id": 1, "text": "one" }, doc! { "_id": 2 }];
        let bytes: Vec<u8> = documents.iter().flat_map(|d| d.to_vec().unwrap()).collect();
        let first = documents[0].to_vec().unwrap().len();
        for gzip in [false, true] {
            for end in 0..=bytes.len() {
                let path = directory.path().join("c.bson");
                let mut writer = Writer::create(&path, gzip).unwrap();
                writer.write(&bytes[..end]).unwrap();
                writer.finish().unwrap();
                let mut file = Documents::open(&path, gzip, Arc::default()).unwrap();
                let mut whole = 0;
                let outcome = loop {
                    match file.next() {
                        Ok(Some(_)) => whole += 1,
                        Ok(None) => break Ok(()),
                        Err(why) => break Err(why),
                    }
                };
                assert_eq!(outcome.is_ok(), [0, first, bytes.len()].contains(&end), "cut at {end}");
                assert_eq!(whole, usize::from(end >= first) + usize::from(end == bytes.len()));
                if let Err(why) = outcome {
                    assert!(why.contains(&format!("at byte {}", if end < first { 0 } else { first })), "{why}");
                }
            }
        }
    }
}
