package main

// Three members as processes, what can be done to them, and what they say of themselves.

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const setName = "rs0"

type member struct {
	lock    sync.Mutex
	folder  string
	port    int
	proxy   *proxy
	process *exec.Cmd
	ended   chan struct{}
	// The file that faults.c reads.
	machine *os.File
}

type set struct {
	binary  string
	library string
	mutant  string
	folder  string
	members []*member
	network *network
	// Where nobody writes for a while; -1 if there is no such member.
	deserted atomic.Int32
}

func newSet(count int, binary, library, mutant string) (*set, error) {
	folder, err := os.MkdirTemp("", "baton-linearizability-")
	if err != nil {
		return nil, err
	}
	s := &set{binary: binary, library: library, mutant: mutant, folder: folder}
	s.deserted.Store(-1)
	s.network = newNetwork(s.pid)
	for i := range count {
		m := &member{folder: filepath.Join(folder, fmt.Sprint(i))}
		if err := os.MkdirAll(m.folder, 0o755); err != nil {
			return nil, err
		}
		m.port = freePort()
		if m.proxy, err = s.network.add(m.port); err != nil {
			return nil, err
		}
		if m.machine, err = os.Create(m.folder + ".machine"); err != nil {
			return nil, err
		}
		if err := m.machine.Truncate(24); err != nil {
			return nil, err
		}
		s.members = append(s.members, m)
	}
	return s, nil
}

// given are the ports that were handed out: a member or a proxy that is down does not hold its port, and wants it back.
var given sync.Map

// freePort is one below those that the system gives to outgoing connections, and is handed out once: a member that is killed finds
// it free when it returns.
func freePort() int {
	for {
		port := 10_000 + rand.Intn(10_000)
		if _, was := given.LoadOrStore(port, true); was {
			continue
		}
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			return port
		}
	}
}

func (s *set) pid(i int) int {
	m := s.members[i]
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.process == nil {
		return 0
	}
	return m.process.Process.Pid
}

// spawn starts the process, unless it runs.
func (s *set) spawn(i int) error {
	m := s.members[i]
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.process != nil {
		return nil
	}
	log, err := os.OpenFile(m.folder+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command(s.binary, "serve", "--dbpath", m.folder, "--port", fmt.Sprint(m.port), "--replSet", setName,
		"--http", "false", "--cacheSizeGB", "0.0625", "--advertisedHost", fmt.Sprintf("127.0.0.1:%d", m.proxy.port),
		"--setParameter", "enableTestCommands=1")
	process.Stdout, process.Stderr = log, log
	process.Env = append(os.Environ(), "LD_PRELOAD="+s.library, "BATON_FAULTS="+m.machine.Name(), "BATON_MUTANT="+s.mutant)
	// Nobody outlives this program.
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		process.Wait()
		close(ended)
	}()
	m.process, m.ended = process, ended
	return m.proxy.open()
}

func (s *set) kill(i int) {
	m := s.members[i]
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.process != nil {
		m.process.Process.Kill()
		<-m.ended
		m.process = nil
		m.proxy.shut()
	}
}

func (s *set) signal(i int, signal syscall.Signal) {
	m := s.members[i]
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.process != nil {
		m.process.Process.Signal(signal)
	}
}

// died says whether a process has ended that nobody killed.
func (s *set) died() error {
	for i, m := range s.members {
		m.lock.Lock()
		process, ended := m.process, m.ended
		m.lock.Unlock()
		if process == nil {
			continue
		}
		select {
		case <-ended:
			return fmt.Errorf("member %d ended by itself: %v", i, process.ProcessState)
		default:
		}
	}
	return nil
}

func (s *set) shiftClock(i int, seconds int64) {
	s.members[i].machine.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(seconds)), 0)
}

func (s *set) address(i int) string { return fmt.Sprintf("127.0.0.1:%d", s.members[i].port) }

// ask runs one command on a member, over a connection of its own.
func (s *set) ask(i int, timeout time.Duration, command bson.D) (bson.M, error) {
	c := connection{address: s.address(i)}
	defer c.close()
	return c.command(timeout, command)
}

// primary is a member that says that it takes writes; -1 if none does.
func (s *set) primary() int {
	for i := range s.members {
		reply, err := s.ask(i, 300*time.Millisecond, bson.D{{Key: "hello", Value: 1}, {Key: "$db", Value: "admin"}})
		if err == nil && reply["isWritablePrimary"] == true {
			return i
		}
	}
	return -1
}

func (s *set) start() error {
	members := bson.A{}
	for i, m := range s.members {
		if err := s.spawn(i); err != nil {
			return err
		}
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: fmt.Sprintf("127.0.0.1:%d", m.proxy.port)}})
	}
	config := bson.D{{Key: "_id", Value: setName}, {Key: "version", Value: 1}, {Key: "members", Value: members},
		{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 1000}, {Key: "heartbeatIntervalMillis", Value: 200}}}}
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		reply, err := s.ask(0, 10*time.Second, bson.D{{Key: "replSetInitiate", Value: config}, {Key: "$db", Value: "admin"}})
		if err == nil && (isOK(reply) || codeOf(reply) == 23) {
			return nil
		}
		last = fmt.Errorf("not initiated: %v %v", reply, err)
		if err := s.died(); err != nil {
			return err
		}
	}
	return last
}

// documents is what a member has of the registers, by its own words.
func (s *set) documents(i int) string {
	reply, err := s.ask(i, 5*time.Second, bson.D{{Key: "find", Value: "registers"}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "$readPreference", Value: bson.D{{Key: "mode", Value: "secondaryPreferred"}}}, {Key: "$db", Value: "test"}})
	if err != nil || !isOK(reply) {
		return fmt.Sprintf("member %d: %v %v", i, reply["errmsg"], err)
	}
	return fmt.Sprint(reply["cursor"].(bson.D)[0].Value)
}

func (s *set) remove(keep bool) {
	for i := range s.members {
		s.kill(i)
		s.members[i].machine.Close()
	}
	if !keep {
		os.RemoveAll(s.folder)
	}
}
