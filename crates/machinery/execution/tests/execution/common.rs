//! A collection in a directory of its own, and the words that tests of execution are told in.

use baton_execution::write::{InsertRules, UpdateStatement, Work, Written, insert_many, update};
use baton_execution::{Given, Hint, NoOwnDocuments, Query, QuerySpec, StorageHost, SystemDraw};
use baton_query::Context;
use baton_query::matcher::Matcher;
use baton_query::pipeline::Pipeline;
use baton_query::sort::SortPattern;
use baton_query::update::Update;
use baton_storage::{Author, Collection, Durability, IndexDefinition, Storage, StorageOptions, Throttle};
use baton_types::{Error, ErrorCode, Interruption, Namespace, Result};
use bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// A storage with the collection `test.c`, and indexes as they are made.
pub struct Ground {
    pub storage: Arc<Storage>,
    pub namespace: Namespace,
    throttle: Throttle,
    author: Arc<Author>,
    _directory: TempDir,
}

/// What is asked whether to go on, and always says yes.
pub fn go_on() -> Result<()> {
    Ok(())
}

/// Says no at the nth question, counted from 1.
pub fn no_at(nth: u32) -> impl Fn() -> Result<()> + Send + Sync {
    let asked = AtomicU32::new(0);
    move || {
        if asked.fetch_add(1, Ordering::Relaxed) + 1 < nth {
            Ok(())
        } else {
            Err(Error::new(ErrorCode::Interrupted, "operation was interrupted"))
        }
    }
}

/// What asks that.
pub fn asking(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Arc<Interruption> {
    Interruption::asking(&(Arc::new(check) as baton_execution::Check))
}

pub fn context() -> Arc<Context> {
    Arc::new(Context::new(DateTime::from_millis(0), 7))
}

pub fn matcher(filter: &RawDocument) -> Arc<Matcher> {
    Arc::new(Matcher::parse(filter, &context()).expect("a filter"))
}

pub fn sorted_by(pattern: &RawDocument) -> Option<Arc<SortPattern>> {
    Some(Arc::new(SortPattern::parse(pattern).expect("a sort pattern")))
}

impl Ground {
    /// With these documents.
    pub fn new(documents: impl IntoIterator<Item = RawDocumentBuf>) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let options = StorageOptions { cache_bytes: 64 << 20, ..StorageOptions::default() };
        let storage = Storage::open(directory.path(), options).expect("the directory opens");
        let ground = Self {
            storage,
            namespace: Namespace::new("test", "c").expect("a name"),
            throttle: Throttle::default(),
            author: Arc::default(),
            _directory: directory,
        };
        let documents: Vec<RawDocumentBuf> = documents.into_iter().collect();
        let mut numbered = documents.iter().enumerate().map(|(at, document)| (at, &**document, 0));
        let mut failures = Vec::new();
        let failed = &mut |at, error| failures.push((at, error));
        insert_many(
            &ground.work(&Arc::default()),
            &ground.namespace,
            &mut numbered,
            InsertRules::default(),
            None,
            failed,
        )
        .expect("inserted");
        assert!(failures.is_empty(), "{failures:?}");
        ground
    }

    /// The same with an index on `key`.
    pub fn index(self, name: &str, key: RawDocumentBuf) -> Self {
        self.index_with(name, key, &RawDocumentBuf::new())
    }

    /// The same with an index on `key`, and options.
    pub fn index_with(self, name: &str, key: RawDocumentBuf, options: &RawDocument) -> Self {
        let mut spec = bson::rawdoc! { "v": 2, "key": key, "name": name };
        for option in options {
            let (option, value) = option.expect("an option");
            spec.append(option, value);
        }
        let definition = IndexDefinition::parse(&spec).expect("a definition");
        self.storage.by_member().create_index(&self.namespace, definition, &mut |_, _| Ok(())).expect("built");
        self
    }

    pub fn collection(&self) -> Arc<Collection> {
        self.storage.collection(&self.namespace).expect("the collection is there")
    }

    pub fn work<'a>(&'a self, interruption: &'a Arc<Interruption>) -> Work<'a> {
        Work {
            storage: &self.storage,
            draw: &SystemDraw,
            interruption,
            durability: Durability::Applied,
            throttle: &self.throttle,
            author: &self.author,
            left: None,
        }
    }

    pub fn host(&self) -> StorageHost {
        let (storage, author) = (Arc::clone(&self.storage), Arc::clone(&self.author));
        StorageHost::new(storage, "test", Arc::new(SystemDraw), Arc::new(NoOwnDocuments), author)
    }

    pub fn query(&self, spec: QuerySpec) -> Query {
        Query::new(&self.storage, Some(self.collection()), spec, context()).expect("planned")
    }

    /// The `_id`s that a query gives, so many documents at a time.
    pub fn ids_by(&self, spec: QuerySpec, at_once: usize) -> Vec<i32> {
        ids(&mut self.query(spec), at_once)
    }

    pub fn ids(&self, spec: QuerySpec) -> Vec<i32> {
        self.ids_by(spec, usize::MAX)
    }

    /// The filter, by an index.
    pub fn by(&self, index: &str, filter: &RawDocument) -> QuerySpec {
        QuerySpec { hint: Some(Hint::Name(index.to_owned())), ..QuerySpec::matching(matcher(filter)) }
    }

    /// What a pipeline makes of the collection.
    pub fn aggregate(&self, stages: &[RawDocumentBuf]) -> Result<Vec<RawDocumentBuf>> {
        let context = context();
        let stages: Vec<&RawDocument> = stages.iter().map(|stage| &**stage).collect();
        let host = self.host();
        let pipeline = Pipeline::parse(&stages, &context)?;
        let mut aggregation = host.open(&self.namespace, pipeline, None, &context)?;
        let mut found = Vec::new();
        let check: baton_execution::Check = Arc::new(go_on);
        while aggregation.run(&check, &mut |document| {
            found.push(document.to_owned());
            Ok(Given::Taken)
        })? {}
        Ok(found)
    }

    /// Updates one document, or all that match.
    pub fn update(&self, filter: &RawDocument, change: &RawDocument, multi: bool, upsert: bool) -> Result<Written> {
        self.update_asking(filter, change, multi, upsert, &Arc::default())
    }

    pub fn update_asking(
        &self,
        filter: &RawDocument,
        change: &RawDocument,
        multi: bool,
        upsert: bool,
        interruption: &Arc<Interruption>,
    ) -> Result<Written> {
        let parsed = Update::parse::<RawDocumentBuf>(RawBsonRef::Document(change), &[], &context())?;
        let statement = UpdateStatement { multi, upsert, ..UpdateStatement::one(matcher(filter), parsed) };
        update(&self.work(interruption), &self.namespace, &statement, &context(), None)
    }

    /// Every index agrees with the documents.
    pub fn assert_valid(&self) {
        let report = self.storage.validate(&self.collection(), &mut |_, _| Ok(())).expect("validated");
        assert!(report.is_valid(), "{:?}", report.errors);
    }
}

/// The `_id`s that a query gives, so many documents at a time.
pub fn ids(query: &mut Query, at_once: usize) -> Vec<i32> {
    let mut found = Vec::new();
    loop {
        let mut room = at_once;
        let more = query
            .run(&go_on, &mut |_, document| {
                if room == 0 {
                    return Ok(Given::Refused);
                }
                room -= 1;
                found.push(document.get_i32("_id").expect("an _id"));
                Ok(Given::Taken)
            })
            .expect("read");
        if !more {
            return found;
        }
    }
}
