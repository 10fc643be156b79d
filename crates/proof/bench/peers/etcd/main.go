// Command etcd-peer is etcd as `baton bench set` compares Baton with it: a member, or a load of puts.
//
//	etcd-peer member NAME DIR CLIENT_PORT PEER_PORT NAME=http://127.0.0.1:PEER_PORT,…
//	etcd-peer load ENDPOINT,… CLIENTS SECONDS RECORDS
//
// The load prints one line of JSON: puts a second, and their latencies in microseconds. Each client has one put of a
// kilobyte under way at a time, on a connection of its own, as Baton's have.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

const valueBytes = 1024

func main() {
	if len(os.Args) < 2 {
		log.Fatal("etcd-peer member|load …")
	}
	switch arguments := os.Args[2:]; {
	case os.Args[1] == "member" && len(arguments) == 5:
		member(arguments[0], arguments[1], local(arguments[2]), local(arguments[3]), arguments[4])
	case os.Args[1] == "load" && len(arguments) == 4:
		load(strings.Split(arguments[0], ","), number(arguments[1]), number(arguments[2]), number(arguments[3]))
	default:
		log.Fatal("etcd-peer member NAME DIR CLIENT_PORT PEER_PORT CLUSTER | load ENDPOINTS CLIENTS SECONDS RECORDS")
	}
}

func local(port string) url.URL {
	return url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return n
}

func member(name, dir string, client, peer url.URL, cluster string) {
	config := embed.NewConfig()
	config.Name, config.Dir = name, dir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = cluster
	config.LogLevel = "error"
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(<-etcd.Err())
}

func load(endpoints []string, clients, seconds, records int) {
	const warmUp = time.Second
	begin := time.Now().Add(warmUp)
	end := begin.Add(time.Duration(seconds) * time.Second)
	latencies := make([][]time.Duration, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			latencies[i] = puts(endpoints, uint64(i), records, begin, end)
		}()
	}
	all.Wait()
	merged := slices.Concat(latencies...)
	if len(merged) == 0 {
		log.Fatal("no put was acknowledged")
	}
	slices.Sort(merged)
	at := func(quantile float64) int64 {
		return merged[min(int(quantile*float64(len(merged))), len(merged)-1)].Microseconds()
	}
	text, err := json.Marshal(map[string]any{
		"puts": float64(len(merged)) / float64(seconds), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": at(1),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
}

func puts(endpoints []string, seed uint64, records int, begin, end time.Time) []time.Duration {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	random := rand.New(rand.NewPCG(seed, 1))
	var latencies []time.Duration
	for {
		started := time.Now()
		if started.After(end) {
			return latencies
		}
		value := make([]byte, valueBytes)
		for i := range value {
			value[i] = byte('a' + random.IntN(26))
		}
		key := fmt.Sprintf("user%019d", random.IntN(records))
		started = time.Now()
		if _, err := client.Put(context.Background(), key, string(value)); err != nil {
			log.Fatal(err)
		}
		if started.After(begin) {
			latencies = append(latencies, time.Since(started))
		}
	}
}
