package main

// What befalls a set: one fault after the other, drawn at random, each for a while; then everything is healed.

import (
	"fmt"
	"math/rand"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const anHour = 3600

type fault struct {
	name   string
	weight int
	// begin starts it and returns what ends it, if anything has to.
	begin func(s *set, random *rand.Rand, victim int) func()
}

var faults = []fault{
	{"kill", 4, func(s *set, _ *rand.Rand, victim int) func() {
		s.kill(victim)
		return func() { s.spawn(victim) }
	}},
	{"pause", 4, func(s *set, _ *rand.Rand, victim int) func() {
		s.signal(victim, syscall.SIGSTOP)
		return func() { s.signal(victim, syscall.SIGCONT) }
	}},
	{"cut off", 4, func(s *set, _ *rand.Rand, victim int) func() {
		s.isolate(victim, true, true)
		return s.network.heal
	}},
	{"cut off, one way", 3, func(s *set, random *rand.Rand, victim int) func() {
		out := random.Intn(2) == 0
		s.isolate(victim, out, !out)
		return s.network.heal
	}},
	{"cut one way of a pair", 3, func(s *set, random *rand.Rand, victim int) func() {
		s.network.cut(victim, (victim+1+random.Intn(len(s.members)-1))%len(s.members))
		return s.network.heal
	}},
	{"set the clock", 2, func(s *set, random *rand.Rand, victim int) func() {
		s.shiftClock(victim, random.Int63n(2*anHour)-anHour)
		if random.Intn(2) == 0 {
			return nil
		}
		return func() { s.shiftClock(victim, 0) }
	}},
	{"step down", 3, func(s *set, random *rand.Rand, _ int) func() {
		s.order(s.primary(), bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "secondaryCatchUpPeriodSecs", Value: 1},
			{Key: "force", Value: random.Intn(2) == 0}, {Key: "$db", Value: "admin"}})
		return nil
	}},
	{"step up", 3, func(s *set, random *rand.Rand, victim int) func() {
		s.order(victim, bson.D{{Key: "replSetStepUp", Value: 1}, {Key: "skipDryRun", Value: random.Intn(2) == 0}, {Key: "$db", Value: "admin"}})
		return nil
	}},
	{"change priorities", 2, func(s *set, random *rand.Rand, _ int) func() {
		s.reprioritise(random)
		return nil
	}},
}

func (s *set) isolate(victim int, out, in bool) {
	for other := range s.members {
		if other == victim {
			continue
		}
		if out {
			s.network.cut(victim, other)
		}
		if in {
			s.network.cut(other, victim)
		}
	}
}

// order asks for something that may be refused.
func (s *set) order(member int, command bson.D) {
	if member >= 0 {
		go s.ask(member, 3*time.Second, command)
	}
}

// reprioritise has the primary take a configuration with other priorities.
func (s *set) reprioritise(random *rand.Rand) {
	primary := s.primary()
	if primary < 0 {
		return
	}
	reply, err := s.ask(primary, time.Second, bson.D{{Key: "replSetGetConfig", Value: 1}, {Key: "$db", Value: "admin"}})
	if err != nil || !isOK(reply) {
		return
	}
	config := reply["config"].(bson.D)
	for i := range config {
		switch config[i].Key {
		case "version":
			config[i].Value = number(config[i].Value) + 1
		case "members":
			for _, member := range config[i].Value.(bson.A) {
				fields := member.(bson.D)
				for j := range fields {
					if fields[j].Key == "priority" {
						fields[j].Value = 1 + random.Intn(3)
					}
				}
			}
		}
	}
	s.order(primary, bson.D{{Key: "replSetReconfig", Value: config}, {Key: "maxTimeMS", Value: 2000}, {Key: "$db", Value: "admin"}})
}

// disturb lets faults happen for so long, and heals everything in the end; says how many there were.
func (s *set) disturb(random *rand.Rand, time_ time.Duration) int {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	count := 0
	for until := time.Now().Add(time_); time.Now().Before(until); {
		time.Sleep(time.Duration(100+random.Intn(500)) * time.Millisecond)
		draw := random.Intn(total)
		chosen := faults[0]
		for _, chosen = range faults {
			if draw -= chosen.weight; draw < 0 {
				break
			}
		}
		victim := random.Intn(len(s.members))
		// Most often whom it hurts most.
		if random.Float64() < 0.6 {
			if primary := s.primary(); primary >= 0 {
				victim = primary
			}
		}
		lasts := time.Duration(200+random.Intn(2500)) * time.Millisecond
		if *verbose {
			fmt.Printf("  %s member %d for %v\n", chosen.name, victim, lasts)
		}
		count++
		if random.Intn(2) == 0 {
			s.deserted.Store(int32(victim))
			time.Sleep(50 * time.Millisecond)
		}
		if end := chosen.begin(s, random, victim); end != nil {
			time.Sleep(lasts)
			end()
		}
		s.deserted.Store(-1)
	}
	s.network.heal()
	for i := range s.members {
		s.signal(i, syscall.SIGCONT)
		s.spawn(i)
		s.shiftClock(i, 0)
	}
	return count
}
