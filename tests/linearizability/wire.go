package main

// A connection that sends commands as OP_MSG and reads replies: no driver between, so that nothing retries, pools or hides.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const opMsg = 2013

var errNotSent = errors.New("no connection")

type connection struct {
	address string
	socket  net.Conn
}

// command sends one command and waits for its reply, `timeout` for all of it. errNotSent says that nothing was sent; after any
// other error it is not known what became of the command.
func (c *connection) command(timeout time.Duration, command bson.D) (bson.M, error) {
	if c.socket == nil {
		socket, err := net.DialTimeout("tcp", c.address, timeout)
		if err != nil {
			return nil, errNotSent
		}
		c.socket = socket
	}
	reply, err := c.exchange(timeout, command)
	if err != nil {
		c.close()
	}
	return reply, err
}

func (c *connection) exchange(timeout time.Duration, command bson.D) (bson.M, error) {
	body, err := bson.Marshal(command)
	if err != nil {
		return nil, errNotSent
	}
	c.socket.SetDeadline(time.Now().Add(timeout))
	message := make([]byte, 21, 21+len(body))
	binary.LittleEndian.PutUint32(message, uint32(21+len(body)))
	binary.LittleEndian.PutUint32(message[4:], 1)
	binary.LittleEndian.PutUint32(message[12:], opMsg)
	if _, err := c.socket.Write(append(message, body...)); err != nil {
		return nil, err
	}
	header := make([]byte, 16)
	if _, err := io.ReadFull(c.socket, header); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(header)
	if length < 21 || length > 48_000_000 {
		return nil, fmt.Errorf("a reply of %d bytes", length)
	}
	payload := make([]byte, length-16)
	if _, err := io.ReadFull(c.socket, payload); err != nil {
		return nil, err
	}
	var reply bson.M
	return reply, bson.Unmarshal(payload[5:], &reply)
}

func (c *connection) close() {
	if c.socket != nil {
		c.socket.Close()
		c.socket = nil
	}
}

func isOK(reply bson.M) bool {
	switch ok := reply["ok"].(type) {
	case float64:
		return ok == 1
	case int32:
		return ok == 1
	}
	return false
}

func codeOf(reply bson.M) int32 {
	code, _ := reply["code"].(int32)
	return code
}
