//! OP_MSG requests that are built once and patched for every use.
//!
//! Invariant: a patch never changes a length, so offsets found at building stay true. The offset of a part is found by
//! building the message with a marker and looking for it, which spares this file a second knowledge of BSON.

use bson::Document;

use crate::Failure;

/// Bytes of the message header and the flag bits.
pub const PREFIX_BYTES: usize = 20;
const OP_MSG: i32 = 2013;

/// A whole request, ready to be sent.
#[derive(Clone, Debug)]
pub struct Template {
    /// Header, flags, sections.
    pub bytes: Vec<u8>,
}

impl Template {
    /// A request of one body, and one document sequence if there is one.
    ///
    /// # Errors
    /// If a document cannot be encoded.
    pub fn new(body: &Document, sequence: Option<(&str, &[Document])>) -> Result<Self, Failure> {
        let mut bytes = Vec::new();
        begin(&mut bytes, body)?;
        if let Some((name, documents)) = sequence {
            let start = open_sequence(&mut bytes, name);
            for document in documents {
                document.to_writer(&mut bytes)?;
            }
            close_sequence(&mut bytes, start);
        }
        finish(&mut bytes);
        Ok(Self { bytes })
    }

    /// Where `marker` is, which must be there exactly once.
    ///
    /// # Errors
    /// If it is not.
    pub fn offset_of(&self, marker: &[u8]) -> Result<usize, Failure> {
        let mut found = self.bytes.windows(marker.len()).enumerate().filter(|(_, window)| *window == marker);
        match (found.next(), found.next()) {
            (Some((offset, _)), None) => Ok(offset),
            _ => Err("a template must hold its marker exactly once".into()),
        }
    }

    /// Overwrites the bytes from `offset` on.
    pub fn patch(&mut self, offset: usize, with: &[u8]) {
        self.bytes[offset..offset + with.len()].copy_from_slice(with);
    }

    /// Gives the request its number.
    pub fn set_request_id(&mut self, id: i32) {
        self.patch(4, &id.to_le_bytes());
    }
}

/// Puts a message up to the end of its body in place of what `bytes` held.
///
/// # Errors
/// If the body cannot be encoded.
pub fn begin(bytes: &mut Vec<u8>, body: &Document) -> Result<(), Failure> {
    bytes.clear();
    bytes.resize(PREFIX_BYTES, 0);
    bytes[12..16].copy_from_slice(&OP_MSG.to_le_bytes());
    bytes.push(0);
    body.to_writer(bytes)?;
    Ok(())
}

/// Begins a document sequence; gives where its length goes.
pub fn open_sequence(bytes: &mut Vec<u8>, name: &str) -> usize {
    bytes.push(1);
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(0);
    start
}

/// Ends the document sequence that began at `start`.
pub fn close_sequence(bytes: &mut [u8], start: usize) {
    let length = (bytes.len() - start) as i32;
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Writes the message's length.
pub fn finish(bytes: &mut [u8]) {
    let length = bytes.len() as i32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn a_patched_template_decodes_to_the_patched_document() {
        let body = doc! { "find": "t", "filter": { "_id": "MARKERxx" }, "limit": 0x0102_0304i32 };
        let mut template = Template::new(&body, None).expect("encodes");
        template.patch(template.offset_of(b"MARKERxx").expect("once"), b"user0001");
        template.patch(template.offset_of(&0x0102_0304i32.to_le_bytes()).expect("once"), &7i32.to_le_bytes());
        let decoded = Document::from_reader(&template.bytes[PREFIX_BYTES + 1..]).expect("decodes");
        assert_eq!(decoded, doc! { "find": "t", "filter": { "_id": "user0001" }, "limit": 7 });
        assert_eq!(template.bytes[..4], (template.bytes.len() as i32).to_le_bytes());
    }

    #[test]
    fn a_marker_that_is_there_twice_is_refused() {
        let template = Template::new(&doc! { "a": "same", "b": "same" }, None).expect("encodes");
        assert!(template.offset_of(b"same").is_err());
    }
}
