//! The Rust driver's story.

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::error::{ErrorKind, Result, WriteFailure};
use mongodb::options::{ClientOptions, Compressor, IndexOptions, ReadConcern, ReturnDocument, WriteConcern};
use mongodb::{Client, Collection, Database, IndexModel};

/// The code that the server gave, if it gave one.
fn code(error: &mongodb::error::Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => error.write_errors.as_ref().map(|errors| errors[0].code),
        _ => None,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let uri = std::env::var("BATON_URI").expect("BATON_URI names the member");
    let mut options = ClientOptions::parse(uri).await?;
    options.compressors = Some(vec![Compressor::Snappy]);
    let client = Client::with_options(options)?;
    let database = client.database("rust_story");
    database.drop().await?;
    let carts = database.collection::<Document>("carts");
    documents(&carts).await?;
    indexes(&carts).await?;
    sessions(&client, &carts).await?;
    administration(&database).await?;
    database.drop().await?;
    println!("the Rust driver: all as told");
    Ok(())
}

async fn documents(carts: &Collection<Document>) -> Result<()> {
    let many = (0..500).map(|n| doc! { "_id": n, "user": format!("u{}", n % 5), "total": i64::from(n) });
    assert_eq!(carts.insert_many(many).await?.inserted_ids.len(), 500);
    assert_eq!(carts.update_many(doc! { "user": "u1" }, doc! { "$inc": { "total": 1 } }).await?.modified_count, 100);
    assert_eq!(carts.replace_one(doc! { "_id": 0 }, doc! { "user": "u0" }).await?.modified_count, 1);
    let upserted = carts.update_one(doc! { "_id": "new" }, doc! { "$set": { "x": 1 } }).upsert(true).await?;
    assert!(upserted.upserted_id.is_some());
    let after = carts
        .find_one_and_update(doc! { "_id": "new" }, doc! { "$inc": { "x": 1 } })
        .return_document(ReturnDocument::After)
        .await?;
    assert_eq!(after, Some(doc! { "_id": "new", "x": 2 }));
    assert_eq!(carts.delete_one(doc! { "_id": "new" }).await?.deleted_count, 1);
    assert_eq!(carts.count_documents(doc! { "user": "u2" }).await?, 100);
    assert_eq!(carts.distinct("user", doc! {}).await?.len(), 5);
    let mut cursor = carts.find(doc! {}).batch_size(50).sort(doc! { "_id": 1 }).await?;
    let mut seen = 0;
    while let Some(document) = cursor.try_next().await? {
        assert_eq!(document.get_i32("_id").ok(), Some(seen));
        seen += 1;
    }
    assert_eq!(seen, 500);
    let refused = carts.insert_many([doc! { "_id": 1 }, doc! { "_id": "behind" }]).ordered(false).await.unwrap_err();
    assert_eq!(code(&refused), Some(11000));
    assert!(carts.find_one(doc! { "_id": "behind" }).await?.is_some());
    Ok(())
}

async fn indexes(carts: &Collection<Document>) -> Result<()> {
    let compound = IndexModel::builder().keys(doc! { "user": 1, "total": -1 }).build();
    assert_eq!(carts.create_index(compound).await?.index_name, "user_1_total_-1");
    let unique = IndexOptions::builder().unique(true).sparse(true).build();
    carts.create_index(IndexModel::builder().keys(doc! { "mail": 1 }).options(unique).build()).await?;
    assert_eq!(carts.list_index_names().await?, ["_id_", "user_1_total_-1", "mail_1"]);
    carts.insert_one(doc! { "mail": "x" }).await?;
    assert_eq!(code(&carts.insert_one(doc! { "mail": "x" }).await.unwrap_err()), Some(11000));
    carts.drop_index("mail_1").await?;
    let pipeline = [
        doc! { "$match": { "user": { "$in": ["u1", "u2"] } } },
        doc! { "$group": { "_id": "$user", "n": { "$sum": 1 } } },
        doc! { "$sort": { "_id": 1 } },
    ];
    let sums: Vec<Document> = carts.aggregate(pipeline).await?.try_collect().await?;
    assert_eq!(sums, [doc! { "_id": "u1", "n": 100 }, doc! { "_id": "u2", "n": 100 }]);
    Ok(())
}

async fn sessions(client: &Client, carts: &Collection<Document>) -> Result<()> {
    let mut session = client.start_session().causal_consistency(true).await?;
    carts.insert_one(doc! { "_id": "causal" }).write_concern(WriteConcern::majority()).session(&mut session).await?;
    let found = carts.find_one(doc! { "_id": "causal" }).read_concern(ReadConcern::majority()).session(&mut session).await?;
    assert!(found.is_some());
    assert!(session.operation_time().is_some());
    Ok(())
}

async fn administration(database: &Database) -> Result<()> {
    database.create_collection("log").capped(true).size(100_000).max(3).await?;
    let log = database.collection::<Document>("log");
    for n in 0..5 {
        log.insert_one(doc! { "_id": n }).await?;
    }
    assert_eq!(log.count_documents(doc! {}).await?, 3);
    assert_eq!(code(&database.create_collection("log").await.unwrap_err()), Some(48));
    assert!(database.list_collection_names().await?.contains(&"log".to_owned()));
    assert_eq!(database.run_command(doc! { "dbStats": 1 }).await?.get_str("db").ok(), Some("rust_story"));
    assert_eq!(code(&database.run_command(doc! { "nosuchcommand": 1 }).await.unwrap_err()), Some(59));
    let changed = log.update_one(doc! { "_id": 4 }, doc! { "$set": { "_id": 9 } }).await.unwrap_err();
    assert_eq!(code(&changed), Some(66));
    Ok(())
}
