// versitygw over a plain folder. It has those flags of versitygw's own program that tests use, and leaves out its other stores (Azure, S3),
// its client and its test suite, which are a third of the source that the original compiles.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

func serve() error {
	// The values without a flag are the defaults of the original.
	config := embedgw.Config{MaxConnections: 250000, MaxRequests: 100000, MultipartMaxParts: 10000, IAMCacheTTL: 120, IAMCachePrune: 3600}
	var port string
	flag.StringVar(&port, "port", ":7070", "where to listen: HOST:PORT")
	flag.StringVar(&config.RootUserAccess, "access", os.Getenv("ROOT_ACCESS_KEY_ID"), "access key")
	flag.StringVar(&config.RootUserSecret, "secret", os.Getenv("ROOT_SECRET_ACCESS_KEY"), "secret key")
	flag.StringVar(&config.Region, "region", "us-east-1", "name of the region")
	flag.StringVar(&config.CertFile, "cert", "", "certificate: TLS")
	flag.StringVar(&config.KeyFile, "key", "", "key of the certificate")
	flag.StringVar(&config.VirtualDomain, "virtual-domain", "", "buckets are hosts below this domain, too")
	flag.BoolVar(&config.KeepAlive, "keep-alive", false, "connections outlive a request")
	flag.BoolVar(&config.Quiet, "quiet", false, "no line for each request")
	flag.Parse()
	if flag.NArg() != 2 || flag.Arg(0) != "posix" {
		return errors.New("usage: versitygw [FLAG]… posix FOLDER")
	}
	config.Ports = []string{port}
	folder := flag.Arg(1)
	if err := (meta.XattrMeta{}).Test(folder); err != nil {
		return fmt.Errorf("%s: no extended attributes: %w", folder, err)
	}
	options := posix.PosixOpts{Concurrency: 5000, IOBufferSize: 1 << 20, CopyObjectThreshold: 5 << 30}
	options.SetNewDirPerm(0o755)
	options.SetNewFilePerm(0o644)
	store, err := posix.New(folder, meta.XattrMeta{}, options)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return embedgw.RunVersityGW(ctx, store, &config)
}
