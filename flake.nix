# Nix: `nix run . -- demo`, `nix develop`, and a NixOS module. `.ci/packaging` evaluates it against a stub of nixpkgs.
{
  description = "Turns an ASM2464PD USB4 enclosure into a USB-to-PCIe bridge for GPUs";

  # Rust 1.89 or newer.
  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "armv7l-linux"
        "aarch64-darwin"
      ];
      eachSystem = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
      cargo = builtins.fromTOML (builtins.readFile ./Cargo.toml);
      # What the crates share is the workspace's.
      manifest = cargo.package // {
        inherit (cargo.workspace.package) version repository;
      };
    in
    {
      packages = eachSystem (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = manifest.name;
          inherit (manifest) version;
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          buildType = "dist";
          nativeBuildInputs = [ pkgs.installShellFiles ];
          # Not here: the tests need Unix tools at their usual paths. .ci/run runs them.
          doCheck = false;
          postInstall = ''
            sh packaging/generate $out/bin/asmpatch package
            installManPage package/man/*.1
            installShellCompletion --bash package/asmpatch.bash --fish package/asmpatch.fish --zsh package/_asmpatch
            install -Dm644 -t $out/lib/udev/rules.d package/70-asmpatch.rules
            install -Dm644 -t $out/share/doc/asmpatch README.md
            cp -r docs $out/share/doc/asmpatch/docs
            install -Dm755 -t $out/libexec/asmpatch packaging/asmpatch-reset-slow
          '';
          meta = {
            inherit (manifest) description;
            homepage = manifest.repository;
            license = [
              pkgs.lib.licenses.mit
              pkgs.lib.licenses.asl20
            ];
            mainProgram = manifest.name;
          };
        };
      });

      devShells = eachSystem (pkgs: {
        default = pkgs.mkShell {
          packages = [
            pkgs.cargo
            pkgs.clippy
            pkgs.rustc
            pkgs.rustfmt
            # Needed by some tests.
            pkgs.binutils
            pkgs.sdcc
            pkgs.wireshark-cli
          ];
        };
      });

      nixosModules.default =
        {
          config,
          lib,
          pkgs,
          ...
        }:
        let
          chosen = config.programs.asmpatch;
        in
        {
          options.programs.asmpatch = {
            enable = lib.mkEnableOption "asmpatch, and its udev rule for whoever sits at the machine";
            package = lib.mkOption {
              type = lib.types.package;
              default = self.packages.${pkgs.stdenv.hostPlatform.system}.default;
              description = "The asmpatch package.";
            };
            resetSlowDocks = lib.mkEnableOption "a restart, at boot, of docks that came up at 480 Mbit/s and whose disk nothing uses";
          };

          config = lib.mkIf chosen.enable {
            environment.systemPackages = [ chosen.package ];
            services.udev.packages = [ chosen.package ];
            # The same as packaging/asmpatch-reset.service.
            systemd.services.asmpatch-reset = lib.mkIf chosen.resetSlowDocks {
              description = "Restart ASM2464PD docks that came up at 480 Mbit/s";
              wantedBy = [ "multi-user.target" ];
              after = [
                "local-fs.target"
                "remote-fs.target"
                "swap.target"
              ];
              unitConfig.ConditionPathExists = "/sys/bus/usb/devices";
              path = [
                chosen.package
                pkgs.gnugrep
                pkgs.gnused
              ];
              serviceConfig = {
                Type = "oneshot";
                ExecStart = "${chosen.package}/libexec/asmpatch/asmpatch-reset-slow";
                TimeoutStartSec = "5min";
                NoNewPrivileges = true;
                ProtectSystem = "strict";
                ProtectHome = true;
                PrivateTmp = true;
                RestrictAddressFamilies = "AF_UNIX AF_NETLINK";
                DevicePolicy = "closed";
                DeviceAllow = [
                  "char-usb_device rw"
                  "block-sd r"
                  "block-blkext r"
                ];
              };
            };
          };
        };
    };
}
