package kit

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const rabbitmqPackage = "rabbitmq-server"

// debianRabbitMQ starts the broker as the calling user. Debian's script on PATH would change the user and the folder.
const debianRabbitMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"

// RabbitMQServer is a broker whose durable queues survive a Kill and a Restart.
type RabbitMQServer struct {
	*server
	epmd *server // the name server of Erlang's nodes; a broker doesn't start without it
}

// RabbitMQ starts a broker for this test and ends it with the test. Erlang takes some seconds to start.
func RabbitMQ(t testing.TB) *RabbitMQServer {
	t.Helper()
	// Otherwise Erlang would start an epmd itself and leave it running.
	epmd := newServer(t, "epmd", rabbitmqPackage, "")
	epmd.args = []string{"-address", "127.0.0.1"}
	epmd.listen = func(port int) (args, env []string) { return []string{"-port", strconv.Itoa(port)}, nil }
	epmd.answers = func(ctx context.Context) error {
		return epmd.exchange(ctx, "", func(io.Reader) error { return nil })
	}
	epmd.startFor(t)

	program := debianRabbitMQ
	if _, err := os.Stat(program); err != nil {
		program = "rabbitmq-server"
	}
	s := &RabbitMQServer{server: newServer(t, program, rabbitmqPackage, ""), epmd: epmd}
	s.answers, s.listen = s.ping, s.settings
	s.startFor(t)
	return s
}

// URL returns the broker's address in the form of the settings, with the credentials of its default user.
func (s *RabbitMQServer) URL() string { return "amqp://guest:guest@" + s.Addr() + "/" }

// settings returns the environment that makes the broker independent of the machine's settings.
func (s *RabbitMQServer) settings(port int) (args, env []string) {
	nodes, _ := FreePort() // without a free port it is 0, which the broker refuses
	return nil, []string{
		"HOME=" + s.dir, // holds the cookie, by which nodes authenticate each other
		"ERL_EPMD_PORT=" + strconv.Itoa(s.epmd.port),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_CRASH_DUMP_BYTES=0",     // otherwise a broker killed at its start leaves a file behind
		"RUNNING_UNDER_SYSTEMD=true", // the script then execs the broker instead of waiting for it
		"RABBITMQ_NODENAME=" + filepath.Base(s.dir) + "@localhost",
		"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
		"RABBITMQ_NODE_PORT=" + strconv.Itoa(port),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(nodes),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(s.dir, "data"),
		"RABBITMQ_LOG_BASE=" + filepath.Join(s.dir, "log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_LOG=error",
		// Exclude the machine's own settings.
		"RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(s.dir, "none"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(s.dir, "none"),
	}
}

// ping reads the broker's first frame, which contains the node's name: another server may have taken the port first.
func (s *RabbitMQServer) ping(ctx context.Context) error {
	return s.exchange(ctx, "AMQP\x00\x00\x09\x01", func(answer io.Reader) error {
		hello := make([]byte, 4096) // the first frame comes in one piece and is far smaller
		n, err := answer.Read(hello)
		if err != nil {
			return err
		}
		if !strings.Contains(string(hello[:n]), filepath.Base(s.dir)+"@") {
			return fmt.Errorf("not our RabbitMQ on %s: %.600q", s.Addr(), hello[:n])
		}
		return nil
	})
}
