# Where things are installed, and the Debian packages that CPack makes of it: penstockd (daemon, worker,
# unit) and penstock (command line). tools/test_package builds, installs and runs them.
include_guard()
include(GNUInstallDirs)

install(TARGETS penstockd penstock-worker RUNTIME DESTINATION bin COMPONENT daemon)
install(FILES deploy/systemd/penstockd.service DESTINATION lib/systemd/system COMPONENT daemon)
install(FILES deploy/systemd/penstock.sysusers DESTINATION lib/sysusers.d RENAME penstock.conf
  COMPONENT daemon)
install(FILES deploy/systemd/penstock.tmpfiles DESTINATION lib/tmpfiles.d RENAME penstock.conf
  COMPONENT daemon)
install(FILES deploy/systemd/penstockd.yaml docs/operations.md docs/errors.md docs/slurm.md
  docs/kubernetes.md DESTINATION share/doc/penstockd COMPONENT daemon)
install(DIRECTORY deploy/slurm deploy/kubernetes DESTINATION share/doc/penstockd/examples
  COMPONENT daemon)

install(TARGETS penstock RUNTIME DESTINATION bin COMPONENT cli)
install(FILES docs/cli.md DESTINATION share/doc/penstock COMPONENT cli)
# Completions are the program's own words.
set(COMPLETIONS
  bash share/bash-completion/completions/penstock
  zsh share/zsh/vendor-completions/_penstock
  fish share/fish/vendor_completions.d/penstock.fish)
set(COMPLETION_FOLDER ${PROJECT_BINARY_DIR}/completions)
while(COMPLETIONS)
  list(POP_FRONT COMPLETIONS SHELL FILE)
  get_filename_component(FOLDER ${FILE} DIRECTORY)
  get_filename_component(NAME ${FILE} NAME)
  install(CODE "
    file(MAKE_DIRECTORY ${COMPLETION_FOLDER}/${SHELL})
    execute_process(COMMAND $<TARGET_FILE:penstock> completion ${SHELL}
      OUTPUT_FILE ${COMPLETION_FOLDER}/${SHELL}/${NAME} COMMAND_ERROR_IS_FATAL ANY)" COMPONENT cli)
  install(FILES ${COMPLETION_FOLDER}/${SHELL}/${NAME} DESTINATION ${FOLDER} COMPONENT cli)
endwhile()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME penstock)
set(CPACK_PACKAGE_VENDOR Penstock)
set(CPACK_PACKAGE_CONTACT "The Penstock authors <penstock@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains language models larger than the GPU, at full precision")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL daemon cli)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME penstockd)
set(CPACK_COMPONENT_DAEMON_DESCRIPTION "The training daemon, its worker and a systemd unit")
# systemd-sysusers and systemd-tmpfiles of the postinst.
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS
  "systemd-standalone-sysusers | systemd, systemd-standalone-tmpfiles | systemd")
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS penstock)
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA
  ${PROJECT_SOURCE_DIR}/deploy/debian/postinst
  ${PROJECT_SOURCE_DIR}/deploy/debian/prerm
  ${PROJECT_SOURCE_DIR}/deploy/debian/postrm)

set(CPACK_DEBIAN_CLI_PACKAGE_NAME penstock)
set(CPACK_COMPONENT_CLI_DESCRIPTION "The command line: submits, watches and manages jobs")
# `penstock run` starts a daemon.
set(CPACK_DEBIAN_CLI_PACKAGE_SUGGESTS penstockd)
include(CPack)
