//! `listIndexes`: the specifications of a collection's indexes. Source: MongoDB manual, "listIndexes".

use crate::call::{Call, Reply};
use crate::ddl::{indexes, list_batch_size, open_list, refuse_view, views};
use crate::table::{CommandSpec, DEFAULT, Flags};
use baton_storage::{Collection, ID_INDEX, IndexState};
use baton_types::{Error, ErrorCode, Result};
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};

/// The row in the table.
pub const SPEC: CommandSpec = CommandSpec {
    name: "listIndexes",
    flags: Flags::API_V1.and(Flags::ON_COLLECTION),
    help: "Lists the indexes of a collection.",
    run,
    ..DEFAULT
};

fn run(call: &mut Call<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let batch_size = list_batch_size(call)?;
    call.fields.optional::<bool>("includeBuildUUIDs")?;
    let with_builds = call.fields.optional::<bool>("includeIndexBuildInfo")?.unwrap_or(false);
    call.fields.finish()?;
    if views::stored(&call.server.storage, &namespace).is_some() {
        return open_list(call, reply, namespace, [Collection::id_index_document()].into(), batch_size);
    }
    let Some(collection) = call.server.storage.collection(&namespace) else {
        return Err(Error::new(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}")));
    };
    refuse_view(&collection)?;
    let mut listed = std::collections::VecDeque::new();
    for specification in indexes::documents(&collection) {
        if !with_builds {
            listed.push_back(specification);
            continue;
        }
        let name = specification.get_str("name").unwrap_or(ID_INDEX);
        let index = collection.index(name).filter(|index| index.state() == IndexState::Building);
        let mut entry = rawdoc! { "spec": specification.clone() };
        if let Some(index) = index {
            let mut info = rawdoc! {};
            if let Some(build) = index.build() {
                let uuid = Binary { subtype: BinarySubtype::Uuid, bytes: build.uuid.to_vec() };
                info = rawdoc! { "buildUUID": uuid, "commitQuorum": build.commit_quorum.clone() };
            }
            entry.append(cstr!("indexBuildInfo"), info);
        }
        listed.push_back(entry);
    }
    open_list(call, reply, namespace, listed, batch_size)
}
