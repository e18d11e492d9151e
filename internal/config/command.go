package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"flashsale/model"
)

// envPrefix begins the name of a setting's environment variable: FLASHSALE_HTTP_ADDR for --http-addr.
const envPrefix = "FLASHSALE_"

// Command is what the user asked for. Name is a command's path, such as "serve" or "migrate up".
type Command struct {
	Name     string
	Settings Settings
	Commands
}

// Tokens are the options of `tokens`.
type Tokens struct {
	Users  int           `required:"" help:"How many buyers."`
	Prefix string        `default:"u" help:"Prefix of the user ids; a number from 1 follows."`
	TTL    time.Duration `default:"24h" help:"How long the tokens are valid."`
}

// VerifyDraw are the options of `verify-draw`. Number is nil if no entry is asked for.
type VerifyDraw struct {
	File      string `arg:"" help:"The sale's draw.json."`
	Number    *int64 `help:"Also print the rank of the entry with this number."`
	BeaconKey string `placeholder:"HEX" help:"Public key of the beacon that is trusted; default: that of drand's quicknet."`
}

// Preflight are the options of `preflight`.
type Preflight struct {
	Sale        string   `help:"Only the sale of this id; default: all that have not ended."`
	Peers       []string `placeholder:"HOST:PORT" help:"Addresses of the instances that will serve the sale, comma-separated; each is asked whether it is ready."`
	Instances   int      `help:"Number of instances that will serve the sale; default: the number of peers, or of running instances."`
	Buyers      int64    `default:"1000000" help:"Expected number of buyers, for the checks of Redis's memory and of what was rehearsed."`
	Connections int      `default:"10000" help:"Expected connections of buyers per instance, for the check of open files."`
	JSON        bool     `name:"json" help:"Print JSON."`
}

// Rehearse are the options of `rehearse`.
type Rehearse struct {
	URL         string `name:"url" required:"" placeholder:"URL" help:"The shop's front door, as https://shop.example. The crowd comes there and nowhere else."`
	Shape       string `required:"" placeholder:"FILE" help:"YAML file that describes the crowd, see docs/loadtest.md."`
	Connections int    `default:"4000" help:"Maximum number of connections, at least 16; half of them are for the event streams, if the crowd opens the page."`
	Out         string `default:"rehearsal-report" placeholder:"DIR" help:"Folder for report.html and report.json (${default})."`
}

// Lab are the options of `lab`.
type Lab struct {
	model.LabPlan `embed:""`

	Out string `default:"lab-report" placeholder:"DIR" help:"Folder for report.html and report.json (${default})."`
}

// flags has no methods, or kong would call Settings.Validate for every command.
type flags Settings

// Commands are all commands with their options.
type Commands struct {
	Serve   struct{} `cmd:"" default:"1" help:"Run the server."`
	Migrate struct {
		Up     struct{} `cmd:"" help:"Bring the schema up to date."`
		Down   struct{} `cmd:"" help:"Undo the last migration, with its data."`
		Status struct{} `cmd:"" help:"List the migrations."`
	} `cmd:"" help:"Change the database's schema."`
	Tokens Tokens `cmd:"" help:"Print buyers with signed tokens for load tools, as CSV: user_id,token."`
	Keys   struct {
		Create struct {
			Name string `required:"" help:"Name of the key, for example of the server that gets it."`
			Role string `default:"support" enum:"viewer,support,operator,holds" help:"What the key may do: ${enum}."`
		} `cmd:"" help:"Make a key, which a server of the shop sends in place of a token, and print it once."`
		List   struct{} `cmd:"" help:"List the keys."`
		Revoke struct {
			Name string `required:"" help:"Name of the key."`
		} `cmd:"" help:"Revoke a key."`
	} `cmd:"" help:"Manage the keys of the shop's servers."`
	Audit struct {
		Sale string `help:"Only the sale of this id."`
	} `cmd:"" help:"Check that every unit is accounted for; exit 1 if not."`
	VerifyDraw VerifyDraw `cmd:"" help:"Recompute a line or a draw from its proof, without any store; exit 1 if a part does not agree."`
	Preflight  Preflight  `cmd:"" help:"Check before a sale that stores, settings, machine and instances are fit for it; exit 1 if not."`
	Rehearse   Rehearse   `cmd:"" help:"Rehearse a sale in full size: a crowd buys a hidden sale at --url, and what it was told is compared with the books; exit 1 if it has not passed."`
	Lab        Lab        `cmd:"" help:"Run the strategies on the same load, and report what each did."`
	Health     struct{}   `cmd:"" help:"Check that the server at --http-addr on this machine answers; exit 1 if not."`
	Version    struct{}   `cmd:"" help:"Print the version."`
}

// ErrHelp means that the user asked for help, and that the help was printed.
var ErrHelp = errors.New("help was printed")

// Parse reads the command and its settings. An error is ErrHelp, or one line that says what is wrong.
func Parse(args []string, getenv func(string) string, stdout, stderr io.Writer) (cmd Command, err error) {
	var c struct {
		Config   configFile  `help:"YAML file of settings, with the names of the flags." placeholder:"FILE"`
		Flags    flags       `embed:""`
		Files    secretFiles `embed:""`
		Commands `embed:""`
	}
	file := &fileSettings{}
	helped := false
	parser, err := kong.New(&c,
		kong.Name("flashsale"),
		kong.Description("A flash-sale engine: sells a fixed quota to far more people than can have it, and never one unit too many."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ValueFormatter(func(v *kong.Value) string {
			if v.Flag == nil || v.Name == "help" {
				return v.Help
			}
			return v.Help + " ($" + envName(v.Name) + ")"
		}),
		kong.Bind(file),
		kong.Resolvers(resolver(getenv, file)),
	)
	if err != nil {
		return cmd, err
	}
	var fileErr error
	if path := getenv(envName("config")); path != "" {
		fileErr = file.load(path)
	}
	ctx, err := parser.Parse(args)
	if helped {
		return cmd, ErrHelp
	}
	if err == nil && file.path == getenv(envName("config")) { // no flag has named another file
		err = fileErr
	}
	if err != nil {
		return cmd, errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	if unknown := file.unknown(parser.Model); unknown != "" {
		return cmd, fmt.Errorf("%s: unknown setting %q", file.path, unknown)
	}
	if err := readSecrets(parser.Model); err != nil {
		return cmd, err
	}
	settings := Settings(c.Flags)
	if err := settings.putPasswords(); err != nil {
		return cmd, err
	}
	name, _, _ := strings.Cut(ctx.Command(), " <") // without the command's arguments
	return Command{name, settings, c.Commands}, nil
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

type configFile string

// BeforeResolve loads the file. kong calls it if the flag is on the command line.
func (configFile) BeforeResolve(ctx *kong.Context, trace *kong.Path, file *fileSettings) error {
	path, _ := ctx.FlagValue(trace.Flag).(configFile)
	return file.load(string(path))
}

// fileSettings holds the top-level keys of a YAML file.
type fileSettings struct {
	path   string
	values map[string]ast.Node
}

// written returns the text of a value as it is in the file: YAML would read a password such as 0123456701 as an octal number. A
// list gets commas.
func written(node ast.Node) string {
	switch value := node.(type) {
	case *ast.NullNode:
		return ""
	case *ast.LiteralNode: // of several lines
		return value.Value.Value
	case *ast.SequenceNode:
		parts := make([]string, len(value.Values))
		for i, entry := range value.Values {
			parts[i] = written(entry)
		}
		return strings.Join(parts, ",")
	case ast.ScalarNode:
		return value.GetToken().Value
	}
	return node.String() // such as a mapping, which no setting takes
}

func (f *fileSettings) load(path string) error {
	f.path, f.values = path, map[string]ast.Node{}
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if err := yaml.Unmarshal(text, &f.values); err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		return fmt.Errorf("--config: %s is not flat YAML: %s", path, line)
	}
	return nil
}

// unknown returns the first key of the file, in alphabetical order, that is not a setting; empty if there is none.
func (f *fileSettings) unknown(app *kong.Application) string {
	for _, key := range slices.Sorted(maps.Keys(f.values)) {
		if flagOf(app, key) == nil || key == "help" || key == "config" {
			return key
		}
	}
	return ""
}

// flagOf returns the flag of all commands that has this name; nil if there is none.
func flagOf(app *kong.Application, name string) *kong.Flag {
	if i := slices.IndexFunc(app.Flags, func(flag *kong.Flag) bool { return flag.Name == name }); i >= 0 {
		return app.Flags[i]
	}
	return nil
}

// resolver gives a flag that is not on the command line its value from the environment, or else from the file.
func resolver(getenv func(string) string, file *fileSettings) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if value := getenv(envName(flag.Name)); value != "" {
			return value, nil
		}
		if value := file.values[flag.Name]; value != nil && value.Type() != ast.NullType {
			return written(value), nil
		}
		return nil, nil
	})
}
