//! `validate`: whether a collection's documents and indexes are whole and agree. Source: MongoDB manual, "validate".
//!
//! Every validation is a full one: each document is read with its checksum and each index entry is compared.

use crate::call::{Call, Reply};
use crate::ddl::{refuse_view, views};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::{CollectionKind, ID_INDEX, ValidateReport};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::raw::CString;
use bson::{RawArrayBuf, RawDocumentBuf, cstr, rawdoc};
use std::collections::VecDeque;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "validate",
    flags: Flags::ON_COLLECTION.and(Flags::ANY_ROLE),
    help: "Reads every document and every index entry of a collection and says whether they agree.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let full = call.fields.truth("full")?;
    let background = call.fields.truth("background")?;
    let repair = call.fields.truth("repair")? | call.fields.truth("fixMultikey")?;
    for name in ["scandata", "metadata", "enforceFastCount", "checkBSONConformance"] {
        call.fields.truth(name)?;
    }
    call.fields.finish()?;
    let invalid = |why: &str| Err(Error::new(ErrorCode::InvalidOptions, why));
    if background && full {
        return invalid(
            "Running the validate command with both { background: true } and { full: true } is not supported.",
        );
    }
    if repair && call.server.topology.is_replicated() {
        return invalid("Running the validate command with { repair: true } can only be performed in standalone mode.");
    }
    if repair {
        return Err(Error::not_implemented("validate with repair: true"));
    }
    let storage = &call.server.storage;
    let Some(collection) = storage.collection(&namespace) else {
        if let Some(definitions) = views::stored(storage, &namespace) {
            append_head(reply, &namespace, views::uuid(namespace.db())?);
            return append_report(reply, &validated(&definitions));
        }
        return Err(Error::new(
            ErrorCode::NamespaceNotFound,
            format!("Collection '{namespace}' does not exist to validate."),
        ));
    };
    if collection.kind == CollectionKind::View {
        return Err(Error::new(ErrorCode::CommandNotSupportedOnView, "Cannot validate a view"));
    }
    refuse_view(&collection)?;
    let operation = &call.operation;
    let report = storage.validate(&collection, &mut |done, total| {
        operation.set_progress("Validate: scanning documents", done, total);
        operation.check_interrupt()
    })?;
    append_head(reply, &namespace, collection.uuid);
    append_report(reply, &report)
}

/// Definitions of views, each read as whoever asks the view will read it.
fn validated(definitions: &VecDeque<RawDocumentBuf>) -> ValidateReport {
    let mut report = ValidateReport { documents: definitions.len() as u64, ..ValidateReport::default() };
    report.keys_per_index.push((ID_INDEX.to_owned(), report.documents));
    for definition in definitions {
        if let Err(error) = views::check_stored(definition) {
            report.invalid_documents += 1;
            report.errors.push(format!("view {}: {}", definition.get_str("_id").unwrap_or_default(), error.message));
        }
    }
    report
}

fn append_head(reply: &mut Reply<'_>, namespace: &Namespace, uuid: [u8; 16]) {
    reply.append(cstr!("ns"), namespace.as_str());
    let uuid = bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: uuid.to_vec() };
    reply.extend(&rawdoc! { "uuid": uuid });
}

fn append_report(reply: &mut Reply<'_>, report: &ValidateReport) -> Result<()> {
    reply.append(cstr!("nInvalidDocuments"), number(report.invalid_documents));
    reply.append(cstr!("nNonCompliantDocuments"), 0);
    reply.append(cstr!("nrecords"), number(report.documents));
    reply.append(cstr!("nIndexes"), report.keys_per_index.len() as i32);
    let mut keys = RawDocumentBuf::new();
    let mut details = RawDocumentBuf::new();
    for (name, count) in &report.keys_per_index {
        let key = CString::try_from(name.as_str())?;
        keys.append(key.clone(), number(*count));
        let prefix = format!("index {name}:");
        let faults: Vec<&str> =
            report.errors.iter().filter(|fault| fault.starts_with(&prefix)).map(String::as_str).collect();
        let mut detail = rawdoc! { "valid": faults.is_empty() };
        if !faults.is_empty() {
            detail.append(cstr!("errors"), texts(&faults));
        }
        details.append(key, detail);
    }
    reply.append(cstr!("keysPerIndex"), &*keys);
    reply.append(cstr!("indexDetails"), &*details);
    reply.append(cstr!("valid"), report.is_valid());
    reply.append(cstr!("repaired"), false);
    let warnings: &[&str] = if report.counters_mended {
        &["The counts of documents and bytes were wrong and have been corrected"]
    } else {
        &[]
    };
    let errors: Vec<&str> = report.errors.iter().map(String::as_str).collect();
    reply.extend(&rawdoc! {
        "warnings": texts(warnings),
        "errors": texts(&errors),
        "extraIndexEntries": [],
        "missingIndexEntries": [],
        "corruptRecords": [],
    });
    if !report.is_valid() {
        let advice = format!(
            "Entries missing: {}, without a document: {}. Drop and build the indexes named in errors again; restore \
             documents that are not well-formed; {ID_INDEX} cannot be rebuilt",
            report.missing_entries, report.extra_entries
        );
        reply.append(cstr!("advice"), advice.as_str());
    }
    Ok(())
}

fn number(count: u64) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

fn texts(texts: &[&str]) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    for text in texts {
        array.push(*text);
    }
    array
}

#[cfg(test)]
mod tests {
    use crate::testing::Member;
    use baton_machine::has_long_slices;
    use baton_types::Namespace;
    use bson::doc;

    #[test]
    fn it_takes_long_slices_and_the_next_request_of_its_thread_does_not() {
        let member = Member::new();
        member.ok("shop", doc! { "insert": "carts", "documents": [ { "_id": 1 } ] });
        let storage = &member.server.storage;
        let collection = storage.collection(&Namespace::new("shop", "carts").unwrap()).unwrap();
        storage.validate(&collection, &mut |_, _| Ok(())).unwrap();
        assert!(has_long_slices());
        member.ok("shop", doc! { "validate": "carts" });
        assert!(!has_long_slices());
    }
}
