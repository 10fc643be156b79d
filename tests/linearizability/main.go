// Command linearizability runs sets of real members under random faults, records what clients saw, and has Porcupine judge
// whether single documents behaved as linearizable registers: reads at read concern "linearizable", writes and compare-and-set
// at w: "majority" with j. In the end all members must have the same documents.
//
// A history has a seed: it fixes the faults and the operations, not the schedules of the machine.
package main

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"go.mongodb.org/mongo-driver/v2/bson"
)

const clients = 5

var (
	program   = flag.String("binary", os.Getenv("BATON"), "the binary under test")
	library   = flag.String("library", os.Getenv("BATON_FAULTS_LIBRARY"), "faults.c, compiled")
	histories = flag.Int("histories", 3, "how many histories")
	parallel  = flag.Int("parallel", 3, "how many at once")
	seconds   = flag.Float64("seconds", 6, "how long each runs under faults")
	seed      = flag.Int64("seed", 0, "the first history's seed; 0 draws one")
	mutant    = flag.String("mutant", "", "the fault that is built in (BATON_MUTANT)")
	expect    = flag.Bool("expect-violation", false, "succeed as soon as a history is not linearizable")
	verbose   = flag.Bool("verbose", false, "print the faults")
)

type verdict struct {
	seed                       int64
	result                     porcupine.CheckResult
	operations, failed, faults int
	err                        error
}

func main() {
	flag.Parse()
	if *seed == 0 {
		*seed = time.Now().UnixNano() % 1_000_000_000
	}
	fmt.Printf("linearizability: %d histories from seed %d, %d at once\n", *histories, *seed, *parallel)
	seeds, verdicts := make(chan int64), make(chan verdict)
	var workers sync.WaitGroup
	for range *parallel {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for seed := range seeds {
				verdicts <- run(seed)
			}
		}()
	}
	enough := make(chan struct{})
	go func() {
		defer close(seeds)
		for i := range *histories {
			select {
			case seeds <- *seed + int64(i):
			case <-enough:
				return
			}
		}
	}()
	go func() {
		workers.Wait()
		close(verdicts)
	}()
	os.Exit(report(verdicts, enough))
}

func report(verdicts <-chan verdict, enough chan struct{}) int {
	var clean, violations, undecided, errors, operations, failed, faults int
	for v := range verdicts {
		operations, failed, faults = operations+v.operations, failed+v.failed, faults+v.faults
		switch {
		case v.result == porcupine.Illegal:
			violations++
			fmt.Printf("seed %d: NOT linearizable (%d operations)\n", v.seed, v.operations)
			if *expect && violations == 1 {
				close(enough)
			}
		case v.err != nil:
			errors++
			fmt.Printf("seed %d: %v\n", v.seed, v.err)
		case v.result == porcupine.Unknown:
			undecided++
			fmt.Printf("seed %d: undecided within the time (%d operations)\n", v.seed, v.operations)
		default:
			clean++
		}
	}
	fmt.Printf("linearizability: %d clean, %d not linearizable, %d undecided, %d failed otherwise; %d operations answered or left open, %d not answered, %d faults\n",
		clean, violations, undecided, errors, operations, failed, faults)
	if *expect {
		if violations > 0 {
			return 0
		}
		fmt.Println("linearizability: the fault that was built in was not found")
		return 1
	}
	if violations+errors+undecided > 0 {
		return 1
	}
	return 0
}

func run(seed int64) verdict {
	v := verdict{seed: seed, result: porcupine.Unknown}
	s, err := newSet(3, *program, *library, *mutant)
	if err != nil {
		v.err = err
		return v
	}
	defer func() { s.remove(v.err != nil || v.result == porcupine.Illegal && !*expect) }()
	if v.err = s.start(); v.err != nil {
		return v
	}
	if v.err = s.settle(); v.err != nil {
		return v
	}
	if v.err = s.createRegisters(); v.err != nil {
		return v
	}
	h := &history{begun: time.Now()}
	leader := &atomic.Int32{}
	stop := make(chan struct{})
	var working sync.WaitGroup
	for number := range clients {
		working.Add(1)
		go func() {
			defer working.Done()
			h.client(s, number, seed*100+int64(number), leader, stop)
		}()
	}
	v.faults = s.disturb(rand.New(rand.NewSource(seed)), time.Duration(*seconds*float64(time.Second)))
	v.err = s.settle()
	if v.err == nil {
		// Reads and writes of a set that is whole again, after all that.
		time.Sleep(300 * time.Millisecond)
	}
	close(stop)
	working.Wait()
	v.operations, v.failed = len(h.events), int(h.failed.Load())
	v.result = h.check(filepath.Join(s.folder, "history.html"))
	if v.err == nil {
		v.err = s.awaitEqual()
	}
	if v.err != nil {
		v.err = fmt.Errorf("%w (see %s)", v.err, s.folder)
	}
	return v
}

// settle waits until one member takes writes and a majority acknowledges them.
func (s *set) settle() error {
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err := s.died(); err != nil {
			return err
		}
		primary := s.primary()
		if primary < 0 {
			last = fmt.Errorf("there is no primary")
			continue
		}
		reply, err := s.ask(primary, 5*time.Second, bson.D{{Key: "insert", Value: "settled"}, {Key: "documents", Value: bson.A{bson.D{{Key: "t", Value: time.Now().UnixNano()}}}},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}, {Key: "wtimeout", Value: 3000}}}, {Key: "$db", Value: "test"}})
		if err == nil && isOK(reply) && reply["writeConcernError"] == nil {
			return nil
		}
		last = fmt.Errorf("no majority write: %v %v", reply, err)
	}
	return last
}

// createRegisters makes every register hold 0.
func (s *set) createRegisters() error {
	updates := bson.A{}
	for register := range registers {
		updates = append(updates, bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: register}}},
			{Key: "u", Value: bson.D{{Key: "$set", Value: bson.D{{Key: "v", Value: 0}}}}}, {Key: "upsert", Value: true}})
	}
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		reply, err := s.ask(max(s.primary(), 0), 10*time.Second, bson.D{{Key: "update", Value: "registers"}, {Key: "updates", Value: updates},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}}, {Key: "$db", Value: "test"}})
		if err == nil && isOK(reply) && reply["writeConcernError"] == nil && reply["writeErrors"] == nil {
			return nil
		}
		last = fmt.Errorf("no registers: %v %v", reply, err)
	}
	return last
}

func (s *set) awaitEqual() error {
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all := make([]string, len(s.members))
		same := true
		for i := range s.members {
			all[i] = s.documents(i)
			same = same && all[i] == all[0]
		}
		if same {
			return nil
		}
		last = fmt.Errorf("the members differ in the end: %v", all)
	}
	return last
}
