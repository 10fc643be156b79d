package main

// Clients that read and write registers, and the history of what they saw.
//
// Each speaks to a member directly, past the cuts of the network, and now and then to another than the one that it takes for the
// primary: a deposed primary is to be asked as well. Some faults have a member deserted first: nobody writes there any more, so
// that all it has is committed and it has no reason of its own to hesitate when it is asked what is true. A reply that does not come, or that does not say whether the write is
// committed, leaves the write open until the end of time.

import (
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	registers   = 4
	patience    = 4 * time.Second
	otherMember = 0.15
	toDeserted  = 0.6
	// A paused member is asked again and again, so that some questions come just before it wakes.
	impatience    = 100 * time.Millisecond
	thinkTimeMean = 12 * time.Millisecond
)

type kind int

const (
	read kind = iota
	write
	compareAndSet
)

// input is what was asked for. A register holds a number; 0 is what it begins with.
type input struct {
	kind     kind
	register int
	old, new int
}

// output is what came of it.
type output struct {
	unknown bool
	value   int
	swapped bool
}

type event struct {
	client        int
	input         input
	output        output
	call, return_ int64
}

type history struct {
	lock   sync.Mutex
	events []event
	begun  time.Time
	// Values are written once.
	values atomic.Int64
	failed atomic.Int64
}

func (h *history) now() int64 { return int64(time.Since(h.begun)) }

func (h *history) add(e event) {
	h.lock.Lock()
	h.events = append(h.events, e)
	h.lock.Unlock()
}

type outcome int

const (
	done outcome = iota
	notDone
	unknown
)

// do carries one operation out on a member.
func do(c *connection, in input, patience time.Duration) (output, outcome) {
	id := bson.D{{Key: "_id", Value: in.register}}
	majority := bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "j", Value: true}, {Key: "wtimeout", Value: 3000}}}
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: in.new}}}}
	db := bson.E{Key: "$db", Value: "test"}
	var command bson.D
	switch in.kind {
	case read:
		command = bson.D{{Key: "find", Value: "registers"}, {Key: "filter", Value: id}, {Key: "limit", Value: 1}, {Key: "singleBatch", Value: true},
			{Key: "readConcern", Value: bson.D{{Key: "level", Value: "linearizable"}}}, {Key: "maxTimeMS", Value: 3000}, db}
	case write:
		update := bson.D{{Key: "q", Value: id}, {Key: "u", Value: set}}
		command = bson.D{{Key: "update", Value: "registers"}, {Key: "updates", Value: bson.A{update}}, majority, db}
	case compareAndSet:
		query := bson.D{{Key: "_id", Value: in.register}, {Key: "v", Value: in.old}}
		command = bson.D{{Key: "findAndModify", Value: "registers"}, {Key: "query", Value: query}, {Key: "update", Value: set}, majority, db}
	}
	reply, err := c.command(patience, command)
	if err == errNotSent {
		return output{}, notDone
	}
	if err != nil {
		return output{}, unknown
	}
	if !isOK(reply) {
		switch codeOf(reply) {
		case 10107, 13435, 13436:
			// "Not primary": it was never begun.
			return output{}, notDone
		}
		return output{}, unknown
	}
	if reply["writeConcernError"] != nil || reply["writeErrors"] != nil {
		return output{}, unknown
	}
	switch in.kind {
	case read:
		value := -1
		if batch, _ := reply["cursor"].(bson.D); len(batch) > 0 {
			for _, field := range batch {
				if documents, is := field.Value.(bson.A); is && len(documents) > 0 {
					for _, f := range documents[0].(bson.D) {
						if f.Key == "v" {
							value = number(f.Value)
						}
					}
				}
			}
		}
		return output{value: value}, done
	case compareAndSet:
		return output{swapped: reply["value"] != nil}, done
	}
	return output{}, done
}

func number(value any) int {
	switch n := value.(type) {
	case int32:
		return int(n)
	case int64:
		return int(n)
	}
	panic(fmt.Sprintf("a register holds %v", value))
}

// client works until `stop`; `leader` is whom the clients take for the primary.
func (h *history) client(s *set, number int, seed int64, leader *atomic.Int32, stop <-chan struct{}) {
	random := rand.New(rand.NewSource(seed))
	connections := make([]*connection, len(s.members))
	for i := range connections {
		connections[i] = &connection{address: s.address(i)}
		defer connections[i].close()
	}
	seen := [registers]int{}
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(random.ExpFloat64() * float64(thinkTimeMean))):
		}
		patience := patience
		in := input{register: random.Intn(registers)}
		switch draw := random.Float64(); {
		case draw < 0.5:
			in.kind = read
		case draw < 0.75:
			in.kind, in.new = write, int(h.values.Add(1))
		default:
			in.kind, in.old, in.new = compareAndSet, seen[in.register], int(h.values.Add(1))
		}
		target := int(leader.Load())
		if random.Float64() < otherMember {
			target = random.Intn(len(s.members))
		}
		if deserted := int(s.deserted.Load()); deserted >= 0 && in.kind != write && random.Float64() < toDeserted {
			target, patience = deserted, impatience
			in.kind = read
			if seen[in.register] > 0 && random.Float64() < 0.1 {
				in.kind, in.old, in.new = compareAndSet, seen[in.register], int(h.values.Add(1))
			}
		} else if target == deserted {
			target = (target + 1 + random.Intn(len(s.members)-1)) % len(s.members)
		}
		call := h.now()
		out, outcome := do(connections[target], in, patience)
		at := h.now()
		switch outcome {
		case done:
			if target != int(s.deserted.Load()) {
				leader.Store(int32(target))
			}
			h.add(event{number, in, out, call, at})
			switch {
			case in.kind == read:
				seen[in.register] = out.value
			case in.kind == write || out.swapped:
				seen[in.register] = in.new
			default:
				// Whatever it is, it is not that: look before trying again.
				seen[in.register] = -1
			}
		case unknown:
			h.failed.Add(1)
			if in.kind != read {
				h.add(event{number, in, output{unknown: true}, call, never})
				// The next operation is another client's: this one's has not returned.
				number += clients
			}
			leader.CompareAndSwap(int32(target), int32(random.Intn(len(s.members))))
		case notDone:
			h.failed.Add(1)
			leader.CompareAndSwap(int32(target), int32(random.Intn(len(s.members))))
			time.Sleep(5 * time.Millisecond)
		}
	}
}
