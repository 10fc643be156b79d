package main

// The network between the members: a proxy in front of each, through which the others reach it. Who connects is found in the
// system's table of sockets, so that a cut is of one pair and one direction. What is sent into a cut waits; when the cut heals
// its connection is closed, as one that has lost packets for too long. Clients go past all this.

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

type way struct{ from, to int }

type network struct {
	lock    sync.Mutex
	healed  *sync.Cond
	cuts    map[way]bool
	proxies []*proxy
	pid     func(member int) int
}

type proxy struct {
	network  *network
	member   int
	port     int
	target   int
	listener net.Listener
	// Closed once nobody accepts from the listener any more.
	deaf chan struct{}
}

func newNetwork(pid func(int) int) *network {
	n := &network{cuts: map[way]bool{}, pid: pid}
	n.healed = sync.NewCond(&n.lock)
	return n
}

// add makes the proxy of one more member, which listens on `target`.
func (n *network) add(target int) (*proxy, error) {
	p := &proxy{network: n, member: len(n.proxies), port: freePort(), target: target}
	if err := p.open(); err != nil {
		return nil, err
	}
	n.proxies = append(n.proxies, p)
	return p, nil
}

func (p *proxy) open() error {
	if p.listener != nil {
		return nil
	}
	listener, err := p.listen()
	if err != nil {
		return err
	}
	p.listener, p.deaf = listener, make(chan struct{})
	go p.accept(listener, p.deaf)
	return nil
}

// listen waits for the port for a while: a process that is just being started has copies of all sockets until it becomes another
// program, the one that was shut among them.
func (p *proxy) listen() (net.Listener, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
		if err == nil || !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			return listener, err
		}
	}
}

// shut refuses connections from now on, as a machine does whose process is gone. The port is free when it returns: it is not before
// whoever waits in Accept has come back.
func (p *proxy) shut() {
	if p.listener != nil {
		p.listener.Close()
		<-p.deaf
		p.listener = nil
	}
}

func (p *proxy) accept(listener net.Listener, deaf chan struct{}) {
	defer close(deaf)
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		go p.carry(near)
	}
}

func (p *proxy) carry(near net.Conn) {
	source := p.network.source(near.RemoteAddr().(*net.TCPAddr).Port, p.port)
	far, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p.target))
	if err != nil {
		near.Close()
		return
	}
	go p.network.copy(near, far, way{source, p.member})
	p.network.copy(far, near, way{p.member, source})
}

func (n *network) copy(from, to net.Conn, w way) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64*1024)
	for {
		count, err := from.Read(buffer)
		if err != nil || !n.passes(w) {
			return
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}

// passes waits while the way is cut, and says whether it was open.
func (n *network) passes(w way) bool {
	n.lock.Lock()
	defer n.lock.Unlock()
	open := true
	for n.cuts[w] {
		open = false
		n.healed.Wait()
	}
	return open
}

func (n *network) cut(from, to int) {
	n.lock.Lock()
	n.cuts[way{from, to}] = true
	n.lock.Unlock()
}

func (n *network) heal() {
	n.lock.Lock()
	n.cuts = map[way]bool{}
	n.lock.Unlock()
	n.healed.Broadcast()
}

// source is the member whose process has the connection from this port to that; -1 if none has. Older connections may have had
// the same port, to others.
func (n *network) source(port, to int) int {
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return -1
	}
	defer table.Close()
	local, remote, inode := fmt.Sprintf("0100007F:%04X", port), fmt.Sprintf("0100007F:%04X", to), ""
	for lines := bufio.NewScanner(table); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == local && fields[2] == remote {
			inode = "socket:[" + fields[9] + "]"
			break
		}
	}
	for member := range n.proxies {
		folder := fmt.Sprintf("/proc/%d/fd", n.pid(member))
		entries, _ := os.ReadDir(folder)
		for _, entry := range entries {
			if name, err := os.Readlink(folder + "/" + entry.Name()); err == nil && name == inode {
				return member
			}
		}
	}
	return -1
}
