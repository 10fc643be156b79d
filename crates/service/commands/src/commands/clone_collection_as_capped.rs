//! `cloneCollectionAsCapped`: a capped copy of a collection beside it. Source: MongoDB manual,
//! "cloneCollectionAsCapped".

use crate::call::{Call, Reply};
use crate::ddl::{draw_uuid, existing_collection, options, refuse_view, temporary_name};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::{CollectionOptions, CopyRequest};
use baton_types::{Error, ErrorCode, Namespace, Result};
use bson::RawDocumentBuf;
use bson::raw::cstr;

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "cloneCollectionAsCapped",
    flags: Flags::WRITE_CONCERN.and(Flags::WRITES).and(Flags::ON_COLLECTION),
    help: "{ cloneCollectionAsCapped: 'coll', toCollection: 'copy', size: bytes } copies a collection into a capped one.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, _: &mut Reply<'_>) -> Result<()> {
    let from = call.namespace()?;
    let to = Namespace::new(call.envelope.db, call.fields.required("toCollection")?)?;
    let size = call.fields.required::<i64>("size")?;
    call.fields.take("temp");
    call.fields.finish()?;
    super::create::check_name(&to)?;
    if call.server.storage.collection(&to).is_some() {
        return Err(Error::new(
            ErrorCode::NamespaceExists,
            format!("cloneCollectionAsCapped failed - destination collection {to} already exists."),
        ));
    }
    copy_as_capped(call, &from, &to, size)
}

/// Copies `from` into a capped collection that takes the name `to`.
pub fn copy_as_capped(call: &Call<'_>, from: &Namespace, to: &Namespace, size: i64) -> Result<()> {
    if size < 0 {
        return Err(Error::bad_value("size has to be >= 0"));
    }
    if size == 0 {
        return Err(Error::new(ErrorCode::InvalidOptions, "Capped collection size must be greater than zero"));
    }
    let storage = &call.server.storage;
    existing_collection(storage, from)?;
    if from.is_system() {
        return Err(Error::new(ErrorCode::IllegalOperation, format!("cannot convert system collection {from}")));
    }
    let request = CopyRequest {
        from,
        to,
        temporary: &temporary_name(to.db(), "convertToCapped")?,
        options: &|source| {
            refuse_view(source)?;
            // A validator stays; the source's own size goes, and so does the name of an index that a capped collection has not.
            let removed = ["capped", "size", "max", "temp", "clusteredIndex"];
            let mut document = options::replaced(&source.options.document, &RawDocumentBuf::new(), &removed)?;
            document.append(cstr!("capped"), true);
            options::append_size(&mut document, size, None)?;
            CollectionOptions::parse(&document)
        },
        uuid: &draw_uuid,
        with_indexes: false,
        drop_target: from == to,
        drop_source: false,
    };
    let operation = &call.operation;
    call.writer().copy_collection(&request, &mut |done, total| {
        operation.set_progress("Copying into a capped collection", done, total);
        operation.check_interrupt()
    })?;
    Ok(())
}
