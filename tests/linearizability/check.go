package main

// Whether a history could be that of one register for each key, each operation done at one moment between its call and its return.

import (
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const never = math.MaxInt64

// A write that is open may be done at any later moment, also after everything else, where nobody sees it.
var model = porcupine.Model{
	Partition: func(operations []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, registers)
		for _, operation := range operations {
			register := operation.Input.(input).register
			parts[register] = append(parts[register], operation)
		}
		return parts
	},
	Init: func() any { return 0 },
	Step: func(state, in, out any) (bool, any) {
		asked, got := in.(input), out.(output)
		switch asked.kind {
		case read:
			return got.value == state.(int), state
		case write:
			return true, asked.new
		}
		matches := asked.old == state.(int)
		if !got.unknown && got.swapped != matches {
			return false, state
		}
		if matches {
			return true, asked.new
		}
		return true, state
	},
	DescribeOperation: func(in, out any) string {
		asked, got := in.(input), out.(output)
		switch asked.kind {
		case read:
			return fmt.Sprintf("read %d -> %d", asked.register, got.value)
		case write:
			return fmt.Sprintf("write %d := %d unknown=%v", asked.register, asked.new, got.unknown)
		}
		return fmt.Sprintf("cas %d: %d => %d swapped=%v unknown=%v", asked.register, asked.old, asked.new, got.swapped, got.unknown)
	},
}

// check gives the verdict on a history, and a picture of it in `path` if it is not linearizable.
func (h *history) check(path string) porcupine.CheckResult {
	operations := make([]porcupine.Operation, len(h.events))
	for i, e := range h.events {
		operations[i] = porcupine.Operation{ClientId: e.client, Input: e.input, Output: e.output, Call: e.call, Return: e.return_}
	}
	result, info := porcupine.CheckOperationsVerbose(model, operations, 60*time.Second)
	if result == porcupine.Illegal {
		if file, err := os.Create(path); err == nil {
			defer file.Close()
			if err := porcupine.Visualize(model, info, file); err == nil {
				fmt.Println("  picture:", path)
			}
		}
	}
	return result
}
