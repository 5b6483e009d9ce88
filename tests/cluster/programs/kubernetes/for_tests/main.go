// The programs that only tests start, in one file: the name under which it is started selects one.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	programs := map[string]func() error{
		"kwok":                  kwokMain,
		"kube-network-policies": networkPoliciesMain,
		"fake-gpus":             fakeGPUsMain,
	}
	name := filepath.Base(os.Args[0])
	program, known := programs[name]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown program", name)
		os.Exit(2)
	}
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
