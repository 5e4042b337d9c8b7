// Command vllm is a stand-in for an engine: it generates nothing, but its memory is real. Each request
// takes as many bytes as it was told to, touches them and never gives them back; the time to the first
// token is as long as it was told to make it. POST /behave?leakBytes=N&ttftSeconds=S tells it.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	address = ":8000"
	page    = 4096
	tokens  = 20
	drain   = 20 * time.Second
)

var bounds = []float64{0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5, 5, 10}

type engine struct {
	sync.Mutex
	leakBytes   int
	ttftSeconds float64
	kept        [][]byte
	running     int
	requests    int
	seconds     float64
	buckets     []int
}

func (e *engine) complete(w http.ResponseWriter, _ *http.Request) {
	e.Lock()
	e.running++
	ttft, leak := e.ttftSeconds, make([]byte, e.leakBytes)
	e.Unlock()
	for at := 0; at < len(leak); at += page {
		leak[at] = 1
	}
	time.Sleep(time.Duration(ttft * float64(time.Second)))
	e.Lock()
	e.kept = append(e.kept, leak)
	e.running--
	e.requests++
	e.seconds += ttft
	for place, bound := range bounds {
		if ttft <= bound {
			e.buckets[place]++
		}
	}
	e.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"object":"text_completion","choices":[{"index":0,"text":"","finish_reason":"length"}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, tokens, tokens)
}

func (e *engine) behave(w http.ResponseWriter, r *http.Request) {
	leak, leakError := strconv.Atoi(r.FormValue("leakBytes"))
	ttft, ttftError := strconv.ParseFloat(r.FormValue("ttftSeconds"), 64)
	if r.Method != http.MethodPost || leakError != nil || ttftError != nil || leak < 0 || ttft < 0 {
		http.Error(w, "POST leakBytes and ttftSeconds, both at least 0", http.StatusBadRequest)
		return
	}
	e.Lock()
	defer e.Unlock()
	e.leakBytes, e.ttftSeconds = leak, ttft
}

func (e *engine) metrics(w http.ResponseWriter, _ *http.Request) {
	e.Lock()
	defer e.Unlock()
	const labels = `{model_name="llama-3-8b",engine="0"}`
	const ttft = "vllm:time_to_first_token_seconds"
	gauge := func(name string, value any) { fmt.Fprintf(w, "# TYPE %s gauge\n%s%s %v\n", name, name, labels, value) }
	counter := func(name string, value any) {
		fmt.Fprintf(w, "# TYPE %s counter\n%s_total%s %v\n", name, name, labels, value)
	}
	gauge("vllm:num_requests_running", e.running)
	gauge("vllm:num_requests_waiting", 0)
	gauge("vllm:kv_cache_usage_perc", 0.1)
	counter("vllm:num_preemptions", 0)
	counter("vllm:prompt_tokens", tokens*e.requests)
	counter("vllm:generation_tokens", tokens*e.requests)
	counter("vllm:request_success", e.requests)
	fmt.Fprintf(w, "# TYPE %s histogram\n", ttft)
	for place, bound := range bounds {
		fmt.Fprintf(w, "%s_bucket{model_name=\"llama-3-8b\",engine=\"0\",le=\"%g\"} %d\n", ttft, bound, e.buckets[place])
	}
	fmt.Fprintf(w, "%s_bucket{model_name=\"llama-3-8b\",engine=\"0\",le=\"+Inf\"} %d\n", ttft, e.requests)
	fmt.Fprintf(w, "%s_count%s %d\n%s_sum%s %g\n", ttft, labels, e.requests, ttft, labels, e.seconds)
}

func main() {
	e := &engine{ttftSeconds: 0.05, buckets: make([]int, len(bounds))}
	http.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("/v1/completions", e.complete)
	http.HandleFunc("/behave", e.behave)
	http.HandleFunc("/metrics", e.metrics)
	server := &http.Server{Addr: address}
	stopped := make(chan os.Signal, 1)
	signal.Notify(stopped, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() {
		<-stopped
		until, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		_ = server.Shutdown(until)
		close(ended)
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-ended
}
