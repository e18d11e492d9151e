package kit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
	s, err := startRabbitMQ()
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	t.Cleanup(func() {
		if err := errors.Join(s.end(), s.epmd.end()); err != nil {
			t.Errorf("end RabbitMQ: %v", err)
		}
	})
	return s
}

// URL returns the broker's address in the form of the settings, with the credentials of its default user.
func (s *RabbitMQServer) URL() string { return "amqp://guest:guest@" + s.Addr() + "/" }

func startRabbitMQ() (*RabbitMQServer, error) {
	program := debianRabbitMQ
	if _, err := os.Stat(program); err != nil {
		if program, err = find("rabbitmq-server", rabbitmqPackage); err != nil {
			return nil, err
		}
	}
	epmd, err := startEpmd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flashsale-rabbitmq-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start RabbitMQ: %w", err), epmd.end())
	}
	s := &RabbitMQServer{epmd: epmd}
	s.server = &server{program: program, dir: dir, answers: s.ping, listen: func(port int) (args, env []string) {
		nodes, _ := freePort() // without a free port it is 0, which the broker refuses
		return nil, []string{
			"HOME=" + dir, // holds the cookie, by which nodes authenticate each other
			"ERL_EPMD_PORT=" + strconv.Itoa(epmd.port),
			"ERL_EPMD_ADDRESS=127.0.0.1",
			"ERL_CRASH_DUMP_BYTES=0",     // otherwise a broker killed at its start leaves a file behind
			"RUNNING_UNDER_SYSTEMD=true", // the script then execs the broker instead of waiting for it
			"RABBITMQ_NODENAME=" + filepath.Base(dir) + "@localhost",
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
			"RABBITMQ_NODE_PORT=" + strconv.Itoa(port),
			"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
			"RABBITMQ_DIST_PORT=" + strconv.Itoa(nodes),
			"RABBITMQ_MNESIA_BASE=" + filepath.Join(dir, "data"),
			"RABBITMQ_LOG_BASE=" + filepath.Join(dir, "log"),
			"RABBITMQ_LOGS=-",
			"RABBITMQ_LOG=error",
			// Exclude the machine's own settings.
			"RABBITMQ_CONF_ENV_FILE=" + os.DevNull,
			"RABBITMQ_CONFIG_FILE=" + filepath.Join(dir, "none"),
			"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(dir, "none"),
		}
	}}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, epmd.end())
	}
	return s, nil
}

// startEpmd starts an epmd for the broker. Otherwise Erlang would start an epmd itself and leave it running.
func startEpmd() (*server, error) {
	program, err := find("epmd", rabbitmqPackage)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "flashsale-epmd-")
	if err != nil {
		return nil, fmt.Errorf("start epmd: %w", err)
	}
	s := &server{program: program, dir: dir, args: []string{"-address", "127.0.0.1"}, listen: func(port int) (args, env []string) {
		return []string{"-port", strconv.Itoa(port)}, nil
	}}
	s.answers = func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return s, s.start()
}

// ping reads the broker's first frame, which contains the node's name: another server may have taken the port first.
func (s *RabbitMQServer) ping(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	hello := make([]byte, 4096) // the first frame comes in one piece and is far smaller
	n, err := conn.Read(hello)
	if err != nil {
		return err
	}
	if !strings.Contains(string(hello[:n]), filepath.Base(s.dir)+"@") {
		return fmt.Errorf("not our RabbitMQ on %s: %.600q", s.Addr(), hello[:n])
	}
	return nil
}
