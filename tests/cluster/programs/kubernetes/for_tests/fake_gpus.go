package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// fakeGPUs is a device plugin whose devices are the files of a folder: each is a healthy nvidia.com/gpu of the file's name, or an
// unhealthy one when it has any content.
type fakeGPUs struct {
	v1beta1.UnimplementedDevicePluginServer
	folder string
}

// fakeGPUsMain serves the kubelet of its node, which it tells of itself, until one of them ends. A kubelet that starts anew is not told:
// that is the death of the node, and of this program, too.
func fakeGPUsMain() error {
	if len(os.Args) != 2 {
		return errors.New("usage: fake-gpus FOLDER")
	}
	socket := filepath.Join(v1beta1.DevicePluginPath, "fake-gpus.sock")
	if err := os.RemoveAll(socket); err != nil { // of an earlier life
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &fakeGPUs{folder: os.Args[1]})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	if err := register(filepath.Base(socket)); err != nil {
		return err
	}
	return <-ended
}

func register(socket string) error {
	connection, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(connection).Register(ctx,
		&v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: socket, ResourceName: "nvidia.com/gpu"})
	return err
}

func (plugin *fakeGPUs) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

// ListAndWatch tells the kubelet at first, and whenever a file has come, gone or changed.
func (plugin *fakeGPUs) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	var told *v1beta1.ListAndWatchResponse
	for look := time.NewTicker(100 * time.Millisecond); ; {
		devices, err := plugin.devices()
		if err != nil {
			return err
		}
		if !proto.Equal(told, devices) {
			if err := stream.Send(devices); err != nil {
				return err
			}
			told = devices
		}
		select {
		case <-look.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (plugin *fakeGPUs) devices() (*v1beta1.ListAndWatchResponse, error) {
	files, err := os.ReadDir(plugin.folder) // in the order of their names
	if err != nil {
		return nil, err
	}
	answer := &v1beta1.ListAndWatchResponse{}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(plugin.folder, file.Name()))
		if err != nil {
			return nil, err
		}
		health := v1beta1.Healthy
		if len(content) > 0 {
			health = v1beta1.Unhealthy
		}
		answer.Devices = append(answer.Devices, &v1beta1.Device{ID: file.Name(), Health: health})
	}
	return answer, nil
}

// Allocate names the devices to the container as NVIDIA's plugin does; there is nothing to mount.
func (plugin *fakeGPUs) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		slices.Sort(container.DevicesIds)
		answer.ContainerResponses = append(answer.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}})
	}
	return answer, nil
}
