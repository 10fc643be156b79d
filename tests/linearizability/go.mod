module baton/tests/linearizability

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	go.mongodb.org/mongo-driver/v2 v2.9.3
)
