// The Go driver's story.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// must ends the story with what went wrong.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func same(what string, expected, got any) {
	if fmt.Sprint(expected) != fmt.Sprint(got) {
		panic(fmt.Sprintf("%s: expected %v, got %v", what, expected, got))
	}
}

func code(err error) int {
	var command mongo.CommandError
	var write mongo.WriteException
	var bulk mongo.BulkWriteException
	switch {
	case errors.As(err, &command):
		return int(command.Code)
	case errors.As(err, &write):
		return write.WriteErrors[0].Code
	case errors.As(err, &bulk):
		return bulk.WriteErrors[0].Code
	}
	return 0
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client := must(mongo.Connect(options.Client().ApplyURI(os.Getenv("BATON_URI")).SetCompressors([]string{"zstd"}).SetTimeout(20 * time.Second)))
	database := client.Database("go_story")
	if err := database.Drop(ctx); err != nil {
		panic(err)
	}
	carts := database.Collection("carts")
	documents(ctx, carts)
	bulkWrites(ctx, carts)
	indexes(ctx, carts)
	sessions(ctx, client, carts)
	administration(ctx, database)
	if err := database.Drop(ctx); err != nil {
		panic(err)
	}
	if err := client.Disconnect(ctx); err != nil {
		panic(err)
	}
	fmt.Println("the Go driver: all as told")
}

func documents(ctx context.Context, carts *mongo.Collection) {
	many := make([]any, 500)
	for n := range many {
		many[n] = bson.D{{"_id", n}, {"user", fmt.Sprintf("u%d", n%5)}, {"total", int64(n)}}
	}
	same("inserted", 500, len(must(carts.InsertMany(ctx, many)).InsertedIDs))
	same("modified", 100, must(carts.UpdateMany(ctx, bson.M{"user": "u1"}, bson.M{"$inc": bson.M{"total": 1}})).ModifiedCount)
	same("replaced", 1, must(carts.ReplaceOne(ctx, bson.M{"_id": 0}, bson.M{"user": "u0"})).ModifiedCount)
	same("upserted", 1, must(carts.UpdateOne(ctx, bson.M{"_id": "new"}, bson.M{"$set": bson.M{"x": 1}}, options.UpdateOne().SetUpsert(true))).UpsertedCount)
	var after bson.M
	if err := carts.FindOneAndUpdate(ctx, bson.M{"_id": "new"}, bson.M{"$inc": bson.M{"x": 1}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&after); err != nil {
		panic(err)
	}
	same("after", 2, after["x"])
	same("deleted", 1, must(carts.DeleteOne(ctx, bson.M{"_id": "new"})).DeletedCount)
	same("counted", 100, must(carts.CountDocuments(ctx, bson.M{"user": "u2"})))
	same("estimated", 500, must(carts.EstimatedDocumentCount(ctx)))
	var users []string
	if err := carts.Distinct(ctx, "user", bson.M{}).Decode(&users); err != nil {
		panic(err)
	}
	same("distinct", 5, len(users))
	cursor := must(carts.Find(ctx, bson.M{}, options.Find().SetBatchSize(50).SetSort(bson.D{{"_id", 1}})))
	seen := 0
	for ; cursor.Next(ctx); seen++ {
		same("_id", seen, cursor.Current.Lookup("_id").AsInt64())
	}
	if err := cursor.Err(); err != nil {
		panic(err)
	}
	same("seen", 500, seen)
	same("nothing found", mongo.ErrNoDocuments, carts.FindOne(ctx, bson.M{"_id": "nobody"}).Err())
}

func bulkWrites(ctx context.Context, carts *mongo.Collection) {
	result := must(carts.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(bson.M{"_id": "a"}),
		mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": "b"}).SetUpdate(bson.M{"$set": bson.M{"x": 1}}).SetUpsert(true),
		mongo.NewDeleteManyModel().SetFilter(bson.M{"user": "u3"}),
	}))
	same("bulk", []int64{1, 1, 100}, []int64{result.InsertedCount, result.UpsertedCount, result.DeletedCount})
	_, err := carts.InsertMany(ctx, []any{bson.M{"_id": "a"}, bson.M{"_id": "c"}}, options.InsertMany().SetOrdered(false))
	same("duplicate", 11000, code(err))
	same("the one behind it", 1, must(carts.CountDocuments(ctx, bson.M{"_id": "c"})))
}

func indexes(ctx context.Context, carts *mongo.Collection) {
	same("name", "user_1_total_-1", must(carts.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{"user", 1}, {"total", -1}}})))
	must(carts.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{"mail", 1}}, Options: options.Index().SetUnique(true).SetSparse(true)}))
	same("indexes", 3, len(must(carts.Indexes().ListSpecifications(ctx))))
	must(carts.InsertOne(ctx, bson.M{"mail": "x"}))
	_, err := carts.InsertOne(ctx, bson.M{"mail": "x"})
	if !mongo.IsDuplicateKeyError(err) {
		panic(fmt.Sprint("a duplicate was answered ", err))
	}
	if err := carts.Indexes().DropOne(ctx, "mail_1"); err != nil {
		panic(err)
	}
	cursor := must(carts.Aggregate(ctx, mongo.Pipeline{
		{{"$match", bson.M{"user": bson.M{"$in": []string{"u1", "u2"}}}}},
		{{"$group", bson.M{"_id": "$user", "n": bson.M{"$sum": 1}}}}, {{"$sort", bson.M{"_id": 1}}}}))
	var sums []struct {
		ID string `bson:"_id"`
		N  int
	}
	if err := cursor.All(ctx, &sums); err != nil {
		panic(err)
	}
	same("sums", "[{u1 100} {u2 100}]", fmt.Sprint(sums))
}

func sessions(ctx context.Context, client *mongo.Client, carts *mongo.Collection) {
	if err := client.UseSession(ctx, func(session context.Context) error {
		majority := carts.Database().Collection("carts", options.Collection().SetWriteConcern(writeconcern.Majority()).SetReadConcern(readconcern.Majority()))
		if _, err := majority.InsertOne(session, bson.M{"_id": "causal"}); err != nil {
			return err
		}
		return majority.FindOne(session, bson.M{"_id": "causal"}).Err()
	}); err != nil {
		panic(err)
	}
	silent := carts.Database().Collection("carts", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	if _, err := silent.InsertOne(ctx, bson.M{"_id": "silent"}); err != nil {
		panic(err)
	}
}

func administration(ctx context.Context, database *mongo.Database) {
	if err := database.CreateCollection(ctx, "log", options.CreateCollection().SetCapped(true).SetSizeInBytes(100000)); err != nil {
		panic(err)
	}
	same("create again", 48, code(database.CreateCollection(ctx, "log")))
	must(database.Collection("log").InsertOne(ctx, bson.M{"_id": 1}))
	tail := must(database.Collection("log").Find(ctx, bson.M{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(200*time.Millisecond)))
	same("tailed", true, tail.Next(ctx))
	same("tail stays open", false, tail.TryNext(ctx))
	same("tail stays open", true, tail.ID() != 0)
	if err := tail.Close(ctx); err != nil {
		panic(err)
	}
	names := must(database.ListCollectionNames(ctx, bson.M{"type": "collection"}))
	same("collections", 2, len(names))
	same("unknown command", 59, code(database.RunCommand(ctx, bson.D{{"nosuchcommand", 1}}).Err()))
	_, err := database.Collection("carts").UpdateOne(ctx, bson.M{"_id": "a"}, bson.M{"$set": bson.M{"_id": "z"}})
	same("change of _id", 66, code(err))
}
