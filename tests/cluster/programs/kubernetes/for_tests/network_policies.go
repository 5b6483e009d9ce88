package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/pflag"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

// networkPoliciesMain decides about the packets that the node's firewall puts into the queue, by the NetworkPolicies in the cluster.
// It returns only when it cannot go on. Its package has a main of its own, which works in a pod only. Here as there it asks the
// kernel for nftables rules beside ours, which a kernel without CONFIG_NFT_QUEUE refuses: its log tells, and nothing is missing.
func networkPoliciesMain() error {
	flags := pflag.NewFlagSet("kube-network-policies", pflag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "a user who may list pods, namespaces and network policies")
	node := flags.String("hostname-override", "", "this node's name")
	queue := flags.Int("nfqueue-id", 0, "number of the queue")
	_ = flags.Parse(os.Args[1:]) // ends the process by itself
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	controller, err := networkpolicy.NewController(client, factory.Networking().V1().NetworkPolicies(),
		factory.Core().V1().Namespaces(), factory.Core().V1().Pods(), nil, nil, nil, nil,
		networkpolicy.Config{QueueID: *queue, NodeName: *node})
	if err != nil {
		return err
	}
	ctx := context.Background()
	factory.Start(ctx.Done())
	if err := controller.Run(ctx); err != nil {
		return err
	}
	return errors.New("the queue is no longer read")
}
