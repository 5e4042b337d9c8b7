// Command vllm is a stand-in for an engine that dies, in the way that DIE says. Its deaths are real: memory
// that the kernel kills it for, exit codes, words where a container leaves its last ones.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	page   = 4096
	mib    = 1 << 20
	served = 4 * time.Second
	length = "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV cache " +
		"is needed, which is larger than the available KV cache memory (0.9 GiB). Based on the available memory, " +
		"the estimated maximum model length is 7360. Try increasing `gpu_memory_utilization` or decreasing " +
		"`max_model_len` when initializing the engine."
	outOfMemory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity " +
		"of 44.40 GiB of which 0.40 GiB is free."
	server = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
)

var kept []byte

func main() {
	dies := os.Getenv("DIE")
	switch dies {
	case "eats-loading":
		eat()
	case "refuses":
		if flag("--gpu-memory-utilization") <= 0.95 {
			refuse()
		}
	}
	var once sync.Once
	var hung sync.Mutex
	http.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		once.Do(func() { go dieLater(dies, &hung) })
		hung.Lock()
		hung.Unlock()
		fmt.Fprintln(w, "ok")
	})
	if err := http.ListenAndServe(":8000", nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// dieLater waits until the kubelet has seen it serve, and then dies.
func dieLater(dies string, hung *sync.Mutex) {
	time.Sleep(served)
	switch dies {
	case "eats-serving":
		eat()
	case "ends-well":
		lastWords("/dev/termination-log", outOfMemory)
		os.Exit(0)
	case "hangs":
		signal.Ignore(syscall.SIGTERM)
		hung.Lock()
	}
}

// eat takes EAT_MIB of memory, page by page.
func eat() {
	amount, _ := strconv.Atoi(os.Getenv("EAT_MIB"))
	kept = make([]byte, amount*mib)
	for at := 0; at < len(kept); at += page {
		kept[at] = 1
	}
}

// refuse speaks as vLLM does: the engine to its log, then the server at a length that hides it.
func refuse() {
	if path := lastWordsPath(); path != "" {
		lastWords(path, "ERROR EngineCore failed to start.\nTraceback (most recent call last):\n"+length)
	}
	fmt.Fprintln(os.Stderr, length)
	for at := 0; at < 40; at++ {
		fmt.Fprintf(os.Stderr, "  File \"/usr/lib/python3.12/dist-packages/vllm/v1/engine/core_client.py\", line %d, in it\n", at)
	}
	fmt.Fprintln(os.Stderr, server)
	os.Exit(1)
}

// lastWordsPath is the file that vLLM's logging, as the pod configures it, writes errors to.
func lastWordsPath() string {
	var config struct {
		Handlers map[string]struct{ Level, Filename string }
	}
	text, err := os.ReadFile(os.Getenv("VLLM_LOGGING_CONFIG_PATH"))
	if err != nil || json.Unmarshal(text, &config) != nil {
		return ""
	}
	for _, handler := range config.Handlers {
		if handler.Level == "ERROR" && handler.Filename != "" {
			return handler.Filename
		}
	}
	return ""
}

func lastWords(path, words string) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(file, words)
	_ = file.Close()
}

func flag(name string) float64 {
	for at, word := range os.Args[:len(os.Args)-1] {
		if strings.TrimSpace(word) == name {
			value, _ := strconv.ParseFloat(os.Args[at+1], 64)
			return value
		}
	}
	return 0
}
